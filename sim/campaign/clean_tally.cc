#include "sim/campaign/clean_tally.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/campaign/tally.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string reason_of(const RunResult& run) {
  if (run.failure) return run.failure->message;
  for (const LaneResult& lane : run.lanes)
    if (lane.verdict == "fail" || lane.verdict == "inconclusive" || lane.verdict == "void")
      return fmt::format("lane {}: {}: {}", lane.lane, lane.verdict, lane.reason);
  for (const std::string& reason : run.check_reasons) return reason;
  return "";
}

LaneTally* lane_of(const std::string& lane, std::vector<LaneTally>* lanes) {
  for (LaneTally& known : *lanes)
    if (known.lane == lane) return &known;
  return nullptr;
}

// P(X <= events) of `runs` trials with this rate.
double at_most(int64_t events, int64_t runs, double rate) {
  double sum = 0;
  for (int64_t k = 0; k <= events; ++k) {
    const auto n = static_cast<double>(runs), x = static_cast<double>(k);
    const double ways = std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1);
    sum += std::exp(ways + x * std::log(rate) + (n - x) * std::log1p(-rate));
  }
  return sum;
}

}  // namespace

CleanRun clean_run_of(const RunResult& run) {
  CleanRun clean;
  clean.name = run.name;
  clean.verdict = run.verdict;
  clean.failed = run.outcome == "failed";
  clean.why = run.verdict == "pass" ? "" : reason_of(run);
  clean.again = run.again;
  for (const LaneResult& lane : run.lanes) {
    clean.lanes.emplace_back(lane.lane, lane.verdict);
    if (lane.statistic) clean.statistic = lane.statistic;
  }
  return clean;
}

CleanTally tally(const std::vector<CleanRun>& runs) {
  CleanTally tally;
  for (const char* lane : {"replica", "replay", "float64", "rounding", "exact"})
    tally.lanes.emplace_back().lane = lane;
  for (const CleanRun& run : runs) {
    ++tally.runs;
    tally.passed += run.verdict == "pass";
    tally.accused += run.verdict == "fail";
    tally.undecided += run.verdict == "inconclusive";
    tally.failed += run.verdict == "inconclusive" && run.failed;
    if (run.statistic) tally.statistics.push_back(*run.statistic);
    for (const auto& [lane, verdict] : run.lanes) {
      LaneTally* of_lane = lane_of(lane, &tally.lanes);
      of_lane->pass += verdict == "pass";
      of_lane->fail += verdict == "fail";
      of_lane->not_applicable += verdict == "not_applicable";
      of_lane->undecided += verdict == "inconclusive" || verdict == "void";
    }
  }
  std::sort(tally.statistics.begin(), tally.statistics.end());
  return tally;
}

double rate_bound_95(int64_t events, int64_t runs) {
  if (events >= runs) return 1;
  double low = 0, high = 1;
  for (int step = 0; step < 100; ++step) {
    const double middle = (low + high) / 2;
    (at_most(events, runs, middle) > 0.05 ? low : high) = middle;
  }
  return high;
}

Json as_json(const CleanTally& tally) {
  Json json = {{"runs", tally.runs},
               {"passed", tally.passed},
               {"accused", tally.accused},
               {"undecided", tally.undecided},
               {"failed", tally.failed},
               {"accused_rate_bound_95", rate_bound_95(tally.accused, tally.runs)}};
  for (const LaneTally& lane : tally.lanes)
    json["lanes"][lane.lane] = {{"pass", lane.pass},
                                {"fail", lane.fail},
                                {"undecided", lane.undecided},
                                {"not_applicable", lane.not_applicable}};
  json["rounding_statistic"] = {{"runs", tally.statistics.size()}};
  if (tally.statistics.empty()) return json;
  for (const auto& [key, percent] : {std::pair("median", 50.0), std::pair("p90", 90.0),
                                     std::pair("p99", 99.0), std::pair("largest", 100.0)})
    json["rounding_statistic"][key] = percentile(tally.statistics, percent);
  return json;
}

}  // namespace lockstep
