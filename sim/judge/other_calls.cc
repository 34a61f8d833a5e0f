#include "sim/judge/other_calls.h"

#include <algorithm>

namespace lockstep {
namespace {

using Calls = std::vector<std::pair<int64_t, Event>>;  // rank -> its call of one number

std::map<int64_t, OtherCall> apart_from_most(const Calls& calls, size_t ranks) {
  std::map<uint64_t, size_t> counts;
  for (const auto& [rank, call] : calls) ++counts[call.value];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (2 * most->second <= ranks) return {};
  const auto is_usual = [&](const auto& call) { return call.second.value == most->first; };
  const Event usual = std::find_if(calls.begin(), calls.end(), is_usual)->second;
  std::map<int64_t, OtherCall> others;
  for (const auto& call : calls)
    if (!is_usual(call)) others[call.first] = {call.second, usual};
  return others;
}

}  // namespace

std::map<int64_t, OtherCall> other_calls(const std::vector<RankView>& ranks) {
  std::map<uint32_t, Calls> by_number;
  for (const RankView& rank : ranks)
    for (const Event& arrival : rank.arrivals)
      by_number[arrival.sequence].emplace_back(rank.rank, arrival);
  for (const auto& entry : by_number) {
    const Calls& calls = entry.second;
    const auto differs = [&](const auto& call) {
      return call.second.value != calls.front().second.value;
    };
    if (std::any_of(calls.begin(), calls.end(), differs))
      return apart_from_most(calls, ranks.size());
  }
  return {};
}

}  // namespace lockstep
