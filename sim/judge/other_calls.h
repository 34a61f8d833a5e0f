#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "sim/judge/rank_view.h"

namespace lockstep {

// A collective, and the ranks that called it.
struct CallSide {
  Event call{};
  std::vector<int64_t> ranks;
};
using CallsDiffer = std::function<bool(const Event&, const Event&)>;

// Ranks by what they called, at the first number at which calls differ; else empty. Only the
// primary run's, as far as each has come.
std::vector<CallSide> first_other_calls(const std::vector<RankView>& ranks,
                                        const CallsDiffer& differ);

// What a rank called where most ranks called something else, in operation, dtype or bytes.
struct OtherCall {
  Event own{}, usual{};
};

// By rank, at the first number at which calls differ; empty where none does, and where no call is
// that of more than half of all ranks, for then nothing tells who is wrong.
std::map<int64_t, OtherCall> other_calls(const std::vector<RankView>& ranks);

}  // namespace lockstep
