#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/judge/rank_view.h"

namespace lockstep {

// What a rank called where most ranks called something else, in operation, dtype or bytes.
struct OtherCall {
  Event own{}, usual{};
};

// By rank, at the first number at which calls differ; empty where none does, and where no call is
// that of more than half of all ranks, for then nothing tells who is wrong. Only the primary run's.
std::map<int64_t, OtherCall> other_calls(const std::vector<RankView>& ranks);

}  // namespace lockstep
