#include "sim/tools/program/group_calls.h"

#include <algorithm>
#include <map>

#include "sim/analysis/group_table.h"

namespace lockstep {

std::optional<GroupMismatch> first_group_mismatch(const ProgramRun& run,
                                                  const CallsDiffer& differ) {
  const GroupTable table = groups_of(run.outcome);
  std::map<size_t, std::map<size_t, RankView>> calls;  // by group and rank: its arrivals
  for (size_t rank = 0; rank < run.outcome.ranks.size(); ++rank)
    for (Event event : run.outcome.ranks[rank].events) {
      const auto group = table.place_of(rank, event.subject);
      if (event.kind != kGroupArrival || !group) continue;
      event.subject = -1;  // as of a call without a bucket
      RankView& view = calls[*group][rank];
      view.rank = static_cast<int64_t>(rank);
      view.arrivals.push_back(event);
    }
  for (const auto& [group, by_rank] : calls) {
    std::vector<RankView> views;
    for (const auto& [rank, view] : by_rank) views.push_back(view);
    auto sides = first_other_calls(views, differ);
    if (!sides.empty()) return GroupMismatch{table.groups[group].ranks, std::move(sides)};
  }
  return std::nullopt;
}

}  // namespace lockstep
