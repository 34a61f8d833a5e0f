#include "sim/sweep/design.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "sim/analysis/step_model.h"
#include "sim/plan/bucket_layout.h"
#include "sim/sweep/measure.h"

namespace lockstep {
namespace {

constexpr double kMostCapMib = 65536;
constexpr int64_t kMostRanks = 4096;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

InputError refused(const char* option, const std::string& word, const std::string& allowed) {
  return option_error(fmt::format("{}: \"{}\"", option, printable(word)), allowed);
}

// `read`: of one word, or nothing.
template <class T, class Read>
Expected<std::vector<T>> list_of(const char* option, const std::string& text,
                                 const std::string& allowed, Read read) {
  std::vector<T> values;
  InputErrors errors;
  for (const std::string& word : words_of(text)) {
    const std::optional<T> value = read(word);
    if (!value)
      errors.push_back(refused(option, word, allowed));
    else if (std::find(values.begin(), values.end(), *value) != values.end())
      errors.push_back(refused(option, word, "each value once"));
    else
      values.push_back(*value);
  }
  if (!errors.empty()) return errors;
  return values;
}

// " find_unused_parameters=true"
std::string varied_text(const Cell& cell) {
  std::string text;
  for (const auto& [pointer, value] : cell.varied)
    text += fmt::format(" {}={}", printable(pointer.substr(pointer.rfind('/') + 1)), value);
  return text;
}

const std::vector<std::string>& reducers() {
  static const std::vector<std::string> all = {"bucketed",      "c10d",          "flat",
                                               "per_parameter", "manual",        "sharded",
                                               "invariant",     "data_parallel", "none"};
  return all;
}

}  // namespace

std::string label_of(const Cell& cell) {
  std::string text = fmt::format("world_size={} reducer={}", cell.world_size, cell.reducer);
  if (cell.cap_mb) text += fmt::format(" bucket_cap_mb={}", *cell.cap_mb);
  return text + varied_text(cell);
}

std::string group_of(const Cell& cell) {
  return fmt::format("world_size={} reducer={}", cell.world_size, cell.reducer) + varied_text(cell);
}

std::vector<Cell> merged_by_layout(std::vector<Cell> cells) {
  std::vector<Cell> merged;
  std::optional<BucketLayout> last;
  for (Cell& cell : cells) {
    const auto layout = cell.cap_mb ? settled_layout(cell.plan, bytes_of_mib(*cell.cap_mb))
                                    : std::optional<BucketLayout>();
    const bool same =
        !merged.empty() && layout && layout == last && group_of(merged.back()) == group_of(cell);
    if (same && cell.cap_mb == kDefaultCapMib) {
      cell.same_caps_mb = std::move(merged.back().same_caps_mb);
      cell.same_caps_mb.push_back(*merged.back().cap_mb);
      merged.back() = std::move(cell);
    } else if (same) {
      merged.back().same_caps_mb.push_back(*cell.cap_mb);
    } else {
      merged.push_back(std::move(cell));
    }
    last = layout;
  }
  return merged;
}

std::vector<size_t> order_of_round(size_t count, int64_t round, uint64_t seed) {
  const auto pair = static_cast<uint64_t>(round / 2);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t left = count; left > 1; --left)  // Fisher and Yates
    std::swap(order[left - 1],
              order[substream_seed(seed, "sweep_order", pair * count + left) % left]);
  if (round % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

Expected<std::vector<double>> parse_caps(const std::string& text) {
  return list_of<double>(
      "--caps", text, "MiB > 0 and <= 65536 with commas between them", [](const std::string& word) {
        const auto value = number_in<double>(word);
        const bool fits = value && *value > 0 && *value <= kMostCapMib && bytes_of_mib(*value) > 0;
        return fits ? value : std::nullopt;
      });
}

Expected<std::vector<int64_t>> parse_worlds(const std::string& text) {
  return list_of<int64_t>("--worlds", text, "numbers of ranks, 1 to 4096, with commas between them",
                          [](const std::string& word) {
                            const auto value = number_in<int64_t>(word);
                            return value && *value >= 1 && *value <= kMostRanks ? value
                                                                                : std::nullopt;
                          });
}

Expected<std::vector<std::string>> parse_reducers(const std::string& text) {
  for (const std::string& word : words_of(text)) {
    if (std::find(reducers().begin(), reducers().end(), word) != reducers().end()) continue;
    const auto meant = closest_word(word, reducers());
    InputError error = refused("--reducers", word, quoted_list(reducers()));
    if (meant) error.message += fmt::format("; did you mean \"{}\"?", *meant);
    return error;
  }
  return list_of<std::string>("--reducers", text, "",
                              [](const std::string& word) { return std::optional(word); });
}

namespace {

double mb(int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }
double milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// Until the last gradients are there, not what follows: of reducers that wait within backward, the
// phase ends with the arrival of the last bucket.
double backward_of(const Timeline& timeline, const Step& step) {
  double longest = 0;
  for (size_t rank = 0; rank < step.ranks.size(); ++rank)
    for (const PhaseInterval& phase : step.ranks[rank].phases) {
      if (phase.phase != Phase::backward) continue;
      int64_t end_ns = phase.time.end_ns;
      int64_t last_ns = 0;
      for (const size_t place : step.collectives) {
        const Passage& passage = timeline.collectives[place].ranks[rank];
        if (timeline.collectives[place].bucket >= 0 && passage.phase == Phase::backward)
          last_ns = std::max(last_ns, passage.ready_ns.value_or(*passage.arrival_ns));
      }
      if (last_ns > phase.time.begin_ns) end_ns = std::min(end_ns, last_ns);
      longest = std::max(longest, milliseconds(end_ns - phase.time.begin_ns));
    }
  return longest;
}

// From when a bucket was next on the wire on all ranks until its last end, by its bytes.
void add_services(const Timeline& timeline, const Step& step,
                  std::map<int64_t, std::vector<double>>* services) {
  int64_t free_ns = 0;
  for (const size_t place : gradient_sums(timeline, step)) {
    const Collective& b = timeline.collectives[place];
    int64_t begin_ns = free_ns, end_ns = 0;
    for (const Passage& passage : b.ranks) {
      begin_ns = std::max(begin_ns, passage.launched_ns.value_or(*passage.arrival_ns));
      end_ns = std::max(end_ns, *passage.end_ns);
    }
    free_ns = end_ns;
    (*services)[b.bytes].push_back(milliseconds(end_ns - begin_ns));
  }
}

// Neither below 0: a line through nothing but noise may have a negative slope.
void fit_line(const std::vector<double>& x, const std::vector<double>& y, TailModel* model) {
  const double x_mean = mean_of(x), y_mean = mean_of(y);
  double both = 0, square = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    both += (x[i] - x_mean) * (y[i] - y_mean);
    square += (x[i] - x_mean) * (x[i] - x_mean);
  }
  const double slope = square > 0 ? both / square : y_mean / x_mean;
  const double start = y_mean - slope * x_mean;
  if (slope < 0) {
    model->alpha_ms = y_mean;
  } else if (start < 0) {
    model->beta_ms_per_mb = y_mean / x_mean;
  } else {
    model->alpha_ms = start;
    model->beta_ms_per_mb = slope;
  }
}

double predicted_at(const RunPlan& plan, const TailModel& model, double cap_mib) {
  const auto layout = settled_layout(plan, bytes_of_mib(cap_mib));
  return predicted_ms(model, *layout, bytes_of(plan, *layout));
}

}  // namespace

double predicted_ms(const TailModel& model, const BucketLayout& layout,
                    const std::vector<int64_t>& bucket_bytes) {
  double end_ms = 0;
  for (size_t b = 0; b < layout.size(); ++b) {
    double ready_ms = 0;
    for (const int64_t p : layout[b])
      ready_ms = std::max(ready_ms, model.ready_ms[static_cast<size_t>(p)]);
    end_ms =
        std::max(ready_ms, end_ms) + model.alpha_ms + model.beta_ms_per_mb * mb(bucket_bytes[b]);
  }
  return std::max(model.backward_ms, end_ms);
}

std::optional<TailModel> calibrated(const RunPlan& plan, const Timeline& timeline, int64_t warmup) {
  std::map<int64_t, std::vector<double>> services;
  std::vector<double> backwards;
  for (const Step& step : timeline.steps) {
    if (step.step <= warmup) continue;
    backwards.push_back(backward_of(timeline, step));
    add_services(timeline, step, &services);
  }
  if (backwards.empty() || services.empty()) return std::nullopt;
  TailModel model;
  model.backward_ms = median_of(backwards);
  auto ready_ms = planned_ready_ms(plan, model.backward_ms);
  if (!ready_ms) return std::nullopt;
  model.ready_ms = std::move(*ready_ms);
  std::vector<double> x, y;
  for (const auto& [bytes, durations] : services) {
    x.push_back(mb(bytes));
    y.push_back(median_of(durations));
  }
  fit_line(x, y, &model);
  return model;
}

CapPrediction best_of(const RunPlan& plan, const TailModel& model,
                      const std::vector<double>& caps) {
  CapPrediction best{caps.front(), predicted_at(plan, model, caps.front())};
  for (const double cap : caps) {
    const double cap_ms = predicted_at(plan, model, cap);
    // What is less than a hundredth of a percent is no reason to choose.
    if (cap_ms < best.backward_ms * 0.9999) best = {cap, cap_ms};
  }
  return best;
}

std::vector<double> caps_to_measure(const RunPlan& plan, const TailModel& model, size_t most) {
  std::vector<double> all = caps_of_distinct_layouts(plan);
  if (all.size() <= most) return all;
  const double best = best_of(plan, model, all).cap_mb;
  std::vector<double> chosen = {best};
  const auto with_layout_of_default = std::find(all.begin(), all.end(), kDefaultCapMib);
  const double usual = with_layout_of_default != all.end() ? kDefaultCapMib : all.back();
  if (usual != best) chosen.push_back(usual);
  while (chosen.size() < most) {  // the one that is furthest from those that are chosen
    double far = all.front(), distance = -1;
    for (const double cap : all) {
      double least = INFINITY;
      for (const double other : chosen) least = std::min(least, std::fabs(std::log(cap / other)));
      if (least > distance) std::tie(far, distance) = std::pair(cap, least);
    }
    chosen.push_back(far);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace lockstep
