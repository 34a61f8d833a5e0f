#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/report/text_style.h"

namespace lockstep {

// Which defects were found, by what, and what the checks that are common today found in the same
// runs: of all runs that have `kill` (scenarios with common_checks).
struct KillCount {
  int64_t defects = 0, killed = 0;  // runs with a defect; found by what had to, cause and place
                                    // right
  int64_t hidden = 0, hidden_as_said = 0;  // runs whose conditions hide the defect, and did
  struct Common {
    int64_t found = 0, missed = 0, not_run = 0;  // of the defects
  };
  std::vector<std::pair<std::string, Common>> common;  // by the names of kCommonChecks
};
KillCount count_kills(const std::vector<RunResult>& runs);
nlohmann::ordered_json as_json(const KillCount& count);

// A row a scenario, a column a lane or check: x where every run of it was caught by that, . where
// none, 1/2 where some were, a blank where it did not apply. Without rows where no run has `kill`.
Table kill_matrix(const std::vector<RunResult>& runs);
// "killed 126 of 126 runs with a defect ..." and a line for the common checks; empty without any.
std::string kill_summary(const std::vector<RunResult>& runs);

}  // namespace lockstep
