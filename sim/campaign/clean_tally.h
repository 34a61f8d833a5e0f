#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/judge/judge.h"

namespace lockstep {

// What is left of a correct run. Accused: it failed, which is a false alarm.
struct CleanRun {
  std::string name;
  std::string verdict;  // pass | fail | inconclusive
  bool failed = false;  // ranks failed
  std::string why;      // one line, where it did not pass
  std::string again;
  std::vector<std::pair<std::string, std::string>> lanes;  // lane -> verdict
  std::optional<double> statistic;                         // R, the worst of its steps
};
CleanRun clean_run_of(const RunResult& run);

struct LaneTally {
  std::string lane;
  int64_t pass = 0, fail = 0, undecided = 0, not_applicable = 0;
};

struct CleanTally {
  int64_t runs = 0, passed = 0, accused = 0, undecided = 0;
  int64_t failed = 0;              // of the undecided: ranks failed
  std::vector<LaneTally> lanes;    // those that ran, in the order of docs/verdicts.md
  std::vector<double> statistics;  // R of the runs with lane rounding, ascending
};
CleanTally tally(const std::vector<CleanRun>& runs);

// The rate of which `runs` runs with at most `events` events would be seen once in twenty times:
// Clopper and Pearson's upper bound (Biometrika 26, 1934) at 95 %; 1 - 0.05^(1/runs) where there
// was no event. 1 without runs.
double rate_bound_95(int64_t events, int64_t runs);

nlohmann::ordered_json as_json(const CleanTally& tally);

}  // namespace lockstep
