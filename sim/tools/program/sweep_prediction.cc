#include "sim/tools/program/sweep_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/analysis/step_model.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {
namespace {

constexpr int kBetween = 3;  // caps between two that were measured

double two_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  const double rounded = std::round(value / unit) * unit;
  return std::round(rounded * 1e6) / 1e6;
}

// Of caps with the same buckets the first counts, and those that were measured come first.
bool is_known(const std::vector<std::vector<int64_t>>& known, const std::vector<int64_t>& buckets) {
  return std::find(known.begin(), known.end(), buckets) != known.end();
}

class CapPredictor {
 public:
  CapPredictor(const std::vector<CellResult>& lines, const std::vector<TracedProgram>& runs,
               const std::vector<std::string>& command, const std::string& folder, int64_t cores)
      : lines_(lines), runs_(runs), command_(command), folder_(folder), cores_(cores) {}

  ProgramPrediction predict() {
    found_.runs = static_cast<int64_t>(runs_.size());
    found_.why = lines_.size() < 2 ? "all caps that were measured give the same buckets, so no "
                                     "prediction can be compared with another"
                                   : why_not_simulated(runs_);
    try {
      if (found_.why.empty() && hold_out_each() && look_between()) sum_up();
    } catch (const std::exception& error) {  // of files in between
      found_.why = error.what();
    }
    return std::move(found_);
  }

 private:
  bool give_up(const InputErrors& errors) {
    found_.why = reason_of(errors);
    return false;
  }

  // Of all runs but those of this cap.
  Expected<ProgramModel> model_without(std::optional<double> cap_mb) const {
    std::vector<const TracedProgram*> kept;
    for (const TracedProgram& run : runs_)
      if (run.cap_mb != cap_mb) kept.push_back(&run);
    if (kept.empty()) return option_error("no run of another cap was traced");
    return program_model(kept, command_, cores_);
  }

  Expected<CapForecast> forecast_at(const ProgramModel& model, double cap_mb) const {
    const int64_t first_bucket = first_bucket_bytes(runs_, cap_mb);
    write_program_model(model, cap_mb, first_bucket, folder_);
    return forecast(model, folder_, cap_mb, first_bucket);
  }

  bool hold_out_each() {
    for (const CellResult& line : lines_) {
      const double cap_mb = *line.cell.cap_mb;
      const auto model = model_without(cap_mb);
      if (!model) return give_up(model.errors());
      const auto made = forecast_at(model.value(), cap_mb);
      if (!made) return give_up(made.errors());
      for (const TracedProgram& run : runs_)
        if (run.cap_mb == cap_mb && run.ranks[0].bucket_bytes != made.value().bucket_bytes) {
          found_.why =
              fmt::format("with {} MiB the buckets are not those that are simulated", cap_mb);
          return false;
        }
      add(made.value(), line.step_ms.value);
    }
    return true;
  }

  bool look_between() {
    auto model = model_without(std::nullopt);
    if (!model) return give_up(model.errors());
    std::vector<double> measured;
    for (const CellResult& line : lines_) measured.push_back(*line.cell.cap_mb);
    for (const double cap_mb : caps_between(measured)) {
      const auto made = forecast_at(model.value(), cap_mb);
      if (!made) return give_up(made.errors());
      if (!is_known(known_, made.value().bucket_bytes)) add(made.value(), std::nullopt);
    }
    found_.model = std::move(model.value());
    return true;
  }

  void add(const CapForecast& made, std::optional<double> measured_ms) {
    known_.push_back(made.bucket_bytes);
    found_.caps.push_back(
        {made.cap_mb, static_cast<int64_t>(made.bucket_bytes.size()), made.step_ms, measured_ms});
  }

  void sum_up() {
    std::sort(found_.caps.begin(), found_.caps.end(),
              [](const PredictedCap& a, const PredictedCap& b) { return a.cap_mb < b.cap_mb; });
    for (const PredictedCap& cap : found_.caps) {
      if (!cap.measured_ms) continue;
      const double off = std::fabs(cap.off());
      found_.mean_off += off / static_cast<double>(lines_.size());
      if (off > found_.largest_off) {
        found_.largest_off = off;
        found_.largest_off_mb = cap.cap_mb;
      }
    }
    std::vector<double> ratios;
    for (const TracedProgram& run : runs_)
      for (const CellResult& line : lines_)
        if (run.cap_mb == line.cell.cap_mb)
          ratios.push_back(numbers_of(run.ranks).step_ms / line.step_ms.value);
    found_.tracing = median_of(ratios) - 1;
    found_.first_bucket_bytes = first_bucket_bytes(runs_, found_.measured()->cap_mb);
  }

  const std::vector<CellResult>& lines_;
  const std::vector<TracedProgram>& runs_;
  const std::vector<std::string>& command_;
  const std::string& folder_;
  const int64_t cores_;
  std::vector<std::vector<int64_t>> known_;  // buckets of those that are in the table
  ProgramPrediction found_;
};

}  // namespace

const PredictedCap* ProgramPrediction::unmeasured() const {
  const PredictedCap* best = nullptr;
  for (const PredictedCap& cap : caps)
    if (!cap.measured_ms && (best == nullptr || cap.step_ms < best->step_ms)) best = &cap;
  return best;
}

const PredictedCap* ProgramPrediction::measured() const {
  const PredictedCap* best = nullptr;
  for (const PredictedCap& cap : caps)
    if (cap.measured_ms && (best == nullptr || *cap.measured_ms < *best->measured_ms)) best = &cap;
  return best;
}

std::vector<double> caps_between(const std::vector<double>& measured) {
  std::vector<double> caps;
  for (size_t i = 1; i < measured.size(); ++i)
    for (int part = 1; part <= kBetween; ++part) {
      const double share = static_cast<double>(part) / (kBetween + 1);
      const double cap =
          two_digits(measured[i - 1] * std::pow(measured[i] / measured[i - 1], share));
      const bool is_new = cap > measured[i - 1] && cap < measured[i];
      if (is_new && (caps.empty() || cap > caps.back())) caps.push_back(cap);
    }
  return caps;
}

ProgramPrediction predict_caps(const std::vector<CellResult>& lines,
                               const std::vector<TracedProgram>& runs,
                               const std::vector<std::string>& command, const std::string& folder,
                               int64_t cores) {
  return CapPredictor(lines, runs, command, folder, cores).predict();
}

std::string why_undecided(const ProgramPrediction& prediction) {
  if (!prediction.why.empty()) return prediction.why;
  if (prediction.largest_off > kMostOff)
    return fmt::format(
        "predictions are off by {:.1f} % at {} MiB, {:.1f} % on average; above {:.0f} % they say "
        "nothing about caps that were not measured",
        prediction.largest_off * 100, prediction.largest_off_mb, prediction.mean_off * 100,
        kMostOff * 100);
  return "";
}

std::string answer_of(const ProgramPrediction& prediction) {
  if (const std::string why = why_undecided(prediction); !why.empty())
    return "inconclusive: " + why;
  const PredictedCap& usual = *prediction.measured();
  const PredictedCap* best = prediction.unmeasured();
  if (best == nullptr) return "no cap between the measured ones gives different buckets";
  const double gain = *usual.measured_ms / best->step_ms - 1;
  if (gain <= prediction.largest_off)
    return fmt::format(
        "no predicted cap beats {} MiB, the fastest measured one, by more than the prediction "
        "error ({:.1f} %)",
        usual.cap_mb, prediction.largest_off * 100);
  return fmt::format(
      "bucket_cap_mb {} would take {:.2f} ms, {:.1f} % less than {} MiB, the fastest that was "
      "measured; predictions are off by {:.1f} % at most; only predicted: measure it with --caps "
      "{},{}",
      best->cap_mb, best->step_ms, (1 - best->step_ms / *usual.measured_ms) * 100, usual.cap_mb,
      prediction.largest_off * 100, std::min(best->cap_mb, usual.cap_mb),
      std::max(best->cap_mb, usual.cap_mb));
}

}  // namespace lockstep
