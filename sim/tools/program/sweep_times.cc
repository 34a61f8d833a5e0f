#include "sim/tools/program/sweep_times.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/base/text.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"
#include "sim/analysis/step_model.h"
#include "sim/sweep/statistics.h"

namespace lockstep {
namespace {

constexpr int64_t kTimesBytesMost = int64_t{16} << 20;
constexpr int64_t kLeastSteps = 3;  // of a median

using Json = nlohmann::ordered_json;

// In milliseconds; below 0: they are no times in order.
double between_ends(int64_t begin_ns, int64_t end_ns) {
  return begin_ns < 0 || end_ns < begin_ns ? -1 : static_cast<double>(end_ns - begin_ns) * 1e-6;
}

// Throws nlohmann::json::exception.
ProgramTimes times_of(const Json& json) {
  ProgramTimes times;
  times.rank = whole_number(json.at("rank"));
  times.world = whole_number(json.at("world"));
  times.torch = json.at("torch").get<std::string>();
  times.steps = whole_number(json.at("steps"));
  times.on_cpu = json.at("on_cpu").get<bool>();
  for (const Json& cap : list_at(json, "given"))
    times.given.push_back(cap.is_null() ? std::nullopt : std::optional(cap.get<double>()));
  for (const Json& bytes : list_at(json, "buckets"))
    times.bucket_bytes.push_back(whole_number(bytes));
  std::optional<int64_t> last;
  for (const Json& end : list_at(json, "ends_ns")) {
    const int64_t end_ns = whole_number(end);
    if (last) times.step_ms.push_back(between_ends(*last, end_ns));
    last = end_ns;
  }
  if (json.contains("trace")) times.trace = program_trace_of(json["trace"]);
  return times;
}

}  // namespace

Expected<ProgramTimes> read_program_times(const std::string& path) {
  ProgramTimes times;
  const InputErrors errors =
      read_json_facts(path, "file of the agent", kTimesBytesMost, [&](const Json& json) {
        times = times_of(json);
        const auto backwards = [](double ms) { return ms < 0; };
        return std::any_of(times.step_ms.begin(), times.step_ms.end(), backwards)
                   ? "its steps do not follow each other"
                   : "";
      });
  if (!errors.empty()) return errors;
  return times;
}

std::string why_not_measured(const std::vector<ProgramTimes>& ranks, int64_t warmup) {
  for (const ProgramTimes& rank : ranks) {
    if (rank.given.empty())
      return fmt::format(
          "rank {} made no DistributedDataParallel, so there are no buckets to choose a size of",
          rank.rank);
    const auto counted = static_cast<int64_t>(rank.step_ms.size());
    if (counted < kLeastSteps)
      return fmt::format(
          "rank {} took {} {} of its optimizer, too few for {} of warm-up (--warmup) and {} more",
          rank.rank, rank.steps, plural(rank.steps, "step"), warmup, kLeastSteps);
    if (rank.bucket_bytes.empty())
      return fmt::format("rank {} had no model in DistributedDataParallel after {} {}", rank.rank,
                         warmup, plural(warmup, "step"));
    if (rank.step_ms.size() != ranks[0].step_ms.size())
      return fmt::format("rank {} took {} steps, and rank {} took {}", ranks[0].rank,
                         ranks[0].steps, rank.rank, rank.steps);
  }
  return "";
}

RunNumbers numbers_of(const std::vector<ProgramTimes>& ranks) {
  std::vector<double> steps(ranks[0].step_ms.size());
  for (const ProgramTimes& rank : ranks)
    for (size_t i = 0; i < steps.size(); ++i)
      steps[i] += rank.step_ms[i] / static_cast<double>(ranks.size());
  RunNumbers numbers;
  numbers.step_ms = median_of(steps);
  numbers.buckets = static_cast<int64_t>(ranks[0].bucket_bytes.size());
  numbers.steps = static_cast<int64_t>(steps.size());
  numbers.outlier_steps = static_cast<int64_t>(outliers(steps).size());
  return numbers;
}

}  // namespace lockstep
