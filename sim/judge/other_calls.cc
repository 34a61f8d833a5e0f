#include "sim/judge/other_calls.h"

#include <algorithm>

namespace lockstep {

std::vector<CallSide> first_other_calls(const std::vector<RankView>& ranks,
                                        const CallsDiffer& differ) {
  std::map<uint32_t, std::vector<CallSide>> by_number;
  for (const RankView& rank : ranks)
    for (const Event& arrival : rank.arrivals) {
      std::vector<CallSide>& sides = by_number[arrival.sequence];
      const auto side = std::find_if(sides.begin(), sides.end(), [&](const CallSide& known) {
        return !differ(known.call, arrival);
      });
      if (side == sides.end())
        sides.push_back({arrival, {rank.rank}});
      else
        side->ranks.push_back(rank.rank);
    }
  for (auto& [number, sides] : by_number)
    if (sides.size() > 1) return std::move(sides);
  return {};
}

std::map<int64_t, OtherCall> other_calls(const std::vector<RankView>& ranks) {
  const std::vector<CallSide> sides =
      first_other_calls(ranks, [](const Event& a, const Event& b) { return a.value != b.value; });
  const auto usual = std::find_if(sides.begin(), sides.end(), [&](const CallSide& side) {
    return 2 * side.ranks.size() > ranks.size();
  });
  if (usual == sides.end()) return {};
  std::map<int64_t, OtherCall> others;
  for (const CallSide& side : sides)
    for (const int64_t rank : side.ranks)
      if (&side != &*usual) others[rank] = {side.call, usual->call};
  return others;
}

}  // namespace lockstep
