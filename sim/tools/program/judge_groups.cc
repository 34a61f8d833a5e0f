#include "sim/tools/program/judge_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "sim/judge/rank_view.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;
using Group = std::vector<const ProgramRank*>;

// Of the ranks that have this parameter, by the bits of its gradient; in the order of ranks.
std::vector<Group> groups_of(const Ranks& ranks, size_t step, const std::string& parameter) {
  std::vector<Group> groups;
  std::map<std::string, size_t> places;
  for (const ProgramRank& rank : ranks) {
    const ProgramStep& own = rank.steps[step];
    const auto at = std::find(own.names.begin(), own.names.end(), parameter);
    if (at == own.names.end()) return {};
    const auto i = static_cast<size_t>(at - own.names.begin());
    const auto place = places.emplace(own.grad_hashes[i], groups.size());
    if (!own.grads[i]) return {};
    if (place.second) groups.emplace_back();
    groups[place.first->second].push_back(&rank);
  }
  return groups;
}

// What is made of other samples is not alike by itself.
bool has_summed(const Group& group, size_t step) {
  return group.size() > 1 && std::all_of(group.begin() + 1, group.end(), [&](const auto* rank) {
           const std::vector<std::string>& own = rank->steps[step].samples;
           return !own.empty() && own != group[0]->steps[step].samples;
         });
}

std::string text_of(const Group& group) {
  std::vector<int64_t> numbers;
  for (const ProgramRank* rank : group) numbers.push_back(rank->rank);
  return ranks_text(numbers);
}

bool may_be_of_groups(ProgramCause cause) {
  return cause == ProgramCause::unknown || cause == ProgramCause::not_reduced ||
         cause == ProgramCause::some_ranks_summed;
}

}  // namespace

void take_groups(const Ranks& ranks, size_t step, const std::string& parameter,
                 ProgramFinding* found) {
  if (found->verdict != Verdict::fail || !may_be_of_groups(found->cause)) return;
  const std::vector<Group> groups = groups_of(ranks, step, parameter);
  if (groups.size() < 2) return;
  std::vector<std::string> texts;
  for (const Group& group : groups) {
    if (!has_summed(group, step)) return;
    texts.push_back(text_of(group));
  }
  found->cause = ProgramCause::some_ranks_summed;
  found->words +=
      fmt::format("; {} have summed among themselves alone", fmt::join(texts, ", and "));
}

}  // namespace lockstep
