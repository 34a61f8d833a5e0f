#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/judge/judge.h"

namespace lockstep {

// What a campaign has to say about one kind of fault.
struct KindTally {
  std::string kind;
  int64_t runs = 0, met = 0;
  int64_t failed_runs = 0;       // in which ranks failed
  std::vector<double> after_ms;  // ascending, as Failure has them
};

// Kinds in alphabetical order. `kinds`: the fault of each run, by its name.
std::vector<KindTally> tally(const std::vector<RunResult>& runs,
                             const std::vector<std::pair<std::string, std::string>>& kinds);

// The nearest-rank percentile of ascending values; values must not be empty. 50: the median.
double percentile(const std::vector<double>& ascending, double percent);

nlohmann::ordered_json as_json(const std::vector<KindTally>& tallies);

}  // namespace lockstep
