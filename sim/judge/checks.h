#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// The first step in which two ranks did not call the same collectives, and what they called.
struct OtherCollective {
  int64_t step = 0;
  std::string text;
};
std::optional<OtherCollective> first_other_collective(const std::vector<RankView>& ranks);

// runs[].checks: pass, fail, or not_run where no rank recorded it, with a line for each failure.
// collective_log is compared here, over the steps that all ranks have ended.
void decide_checks(const std::vector<RankView>& ranks, RunResult* result);

}  // namespace lockstep
