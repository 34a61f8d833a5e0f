#include "sim/tools/program/drill_branch.h"

#include <algorithm>
#include <map>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {

std::optional<DrillBranch> other_branch(const std::vector<DrillRank>& ranks, const DrillRank& one) {
  std::map<std::string, DrillBranch> used;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const DrillParameter& parameter : ranks[rank].parameters)
      used[parameter.name].ranks.push_back(static_cast<int64_t>(rank));
  for (const DrillParameter& parameter : one.parameters) used[parameter.name].one = true;
  const bool together = std::all_of(used.begin(), used.end(), [](const auto& entry) {
    return entry.second.one == !entry.second.ranks.empty();
  });
  std::optional<DrillBranch> found;
  for (auto& [name, branch] : used) {
    const bool ranks_alike = branch.ranks.empty() || branch.ranks.size() == ranks.size();
    if (ranks_alike && (found || branch.one == !branch.ranks.empty())) continue;
    branch.parameter = name;
    branch.together = together;
    found = branch;
    if (!ranks_alike) break;
  }
  return found;
}

std::string changed_apart(const std::vector<DrillRank>& ranks, const DrillRank& one, size_t call) {
  const auto later_of = [](const DrillRank& rank, const std::string& name) -> Sketch {
    for (const DrillParameter& parameter : rank.parameters)
      if (parameter.name == name) return parameter.later;
    return std::nullopt;
  };
  for (const DrillParameter& parameter : one.parameters) {
    if (!parameter.later || parameter.later_call > call) continue;
    const Sketch first = later_of(ranks[0], parameter.name);
    for (const DrillRank& rank : ranks)
      if (const Sketch own = later_of(rank, parameter.name); first && own && !agree(own, first))
        return parameter.name;
  }
  return "";
}

}  // namespace lockstep
