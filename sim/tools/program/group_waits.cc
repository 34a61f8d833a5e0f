#include "sim/tools/program/group_waits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

struct Member {
  int64_t entered = 0, ended = 0;  // calls
  int64_t entered_ns = 0;          // the last of them
};

using Key = std::pair<std::string, std::vector<int64_t>>;
using Members = std::map<int64_t, Member>;  // by rank

void count(const ProgramRun& run, size_t rank, std::map<Key, Members>* all) {
  const std::vector<RankGroup>& groups = run.ranks[rank].groups;
  for (const Event& event : run.outcome.ranks[rank].events) {
    const bool entered = event.kind == kGroupArrival;
    if (!entered && event.kind != kGroupEnd) continue;
    if (event.subject < 0 || static_cast<size_t>(event.subject) >= groups.size()) continue;
    const RankGroup& group = groups[static_cast<size_t>(event.subject)];
    Member& member = (*all)[{group.name, group.ranks}][static_cast<int64_t>(rank)];
    int64_t& calls = entered ? member.entered : member.ended;
    calls = std::max<int64_t>(calls, event.sequence);
    if (entered) member.entered_ns = event.time_ns;
  }
}

std::optional<GroupWait> wait_in(const std::vector<int64_t>& ranks, Members members) {
  int64_t call = 0;  // the first that not all have entered
  for (const int64_t rank : ranks) {
    const int64_t next = members[rank].entered + 1;
    call = call == 0 ? next : std::min(call, next);
  }
  GroupWait wait;
  wait.members = ranks;
  wait.call = call;
  for (const int64_t rank : ranks) {
    const Member& member = members[rank];
    if (member.entered < call) wait.missing.push_back(rank);
    if (member.entered < call || member.ended >= call) continue;
    wait.since_ns =
        wait.waiting.empty() ? member.entered_ns : std::min(wait.since_ns, member.entered_ns);
    wait.waiting.push_back(rank);
  }
  if (wait.waiting.empty()) return std::nullopt;
  return wait;
}

}  // namespace

std::optional<GroupWait> longest_group_wait(const ProgramRun& run) {
  std::map<Key, Members> all;
  for (size_t rank = 0; rank < std::min(run.ranks.size(), run.outcome.ranks.size()); ++rank)
    count(run, rank, &all);
  std::optional<GroupWait> longest;
  for (const auto& [key, members] : all) {
    const auto wait = wait_in(key.second, members);
    if (wait && (!longest || wait->since_ns < longest->since_ns)) longest = wait;
  }
  return longest;
}

bool waits_in_group(const ProgramRun& run, int64_t rank) {
  const auto place = static_cast<size_t>(rank);
  if (place >= std::min(run.ranks.size(), run.outcome.ranks.size())) return false;
  std::map<Key, Members> all;
  count(run, place, &all);
  return std::any_of(all.begin(), all.end(), [&](const auto& group) {
    const Member& member = group.second.at(rank);
    return member.ended < member.entered;
  });
}

}  // namespace lockstep
