#include "sim/tools/program/group_waits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

struct Member {
  int64_t entered = 0, ended = 0;  // calls
  int64_t entered_ns = 0;          // the last of them
  int64_t entered_later = 0;       // the last, whenever that was
};

using Key = std::pair<std::string, std::vector<int64_t>>;
using Members = std::map<int64_t, Member>;  // by rank

void count(const ProgramRun& run, size_t rank, int64_t as_of_ns, std::map<Key, Members>* all) {
  const std::vector<RankGroup>& groups = run.ranks[rank].groups;
  for (const Event& event : run.outcome.ranks[rank].events) {
    const bool entered = event.kind == kGroupArrival;
    if (!entered && event.kind != kGroupEnd) continue;
    if (event.subject < 0 || static_cast<size_t>(event.subject) >= groups.size()) continue;
    const RankGroup& group = groups[static_cast<size_t>(event.subject)];
    Member& member = (*all)[{group.name, group.ranks}][static_cast<int64_t>(rank)];
    if (entered) member.entered_later = std::max<int64_t>(member.entered_later, event.sequence);
    if (event.time_ns > as_of_ns) continue;
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
  wait.late = true;
  for (const int64_t rank : ranks) {
    const Member& member = members[rank];
    if (member.entered < call) wait.missing.push_back(rank);
    if (member.entered_later < call) wait.late = false;
    if (member.entered < call || member.ended >= call) continue;
    wait.since_ns =
        wait.waiting.empty() ? member.entered_ns : std::min(wait.since_ns, member.entered_ns);
    wait.waiting.push_back(rank);
  }
  if (wait.waiting.empty()) return std::nullopt;
  return wait;
}

// The longest first.
std::vector<GroupWait> group_waits(const ProgramRun& run, int64_t as_of_ns) {
  std::map<Key, Members> all;
  for (size_t rank = 0; rank < std::min(run.ranks.size(), run.outcome.ranks.size()); ++rank)
    count(run, rank, as_of_ns, &all);
  std::vector<GroupWait> waits;
  for (const auto& [key, members] : all)
    if (auto wait = wait_in(key.second, members)) waits.push_back(std::move(*wait));
  std::stable_sort(waits.begin(), waits.end(),
                   [](const GroupWait& a, const GroupWait& b) { return a.since_ns < b.since_ns; });
  return waits;
}

bool has_rank(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// What it waits in for longest; null: in none.
const GroupWait* wait_of(const std::vector<GroupWait>& waits, int64_t rank) {
  const auto found = std::find_if(waits.begin(), waits.end(), [&](const GroupWait& wait) {
    return has_rank(wait.waiting, rank);
  });
  return found == waits.end() ? nullptr : &*found;
}

GroupWait root_of(const std::vector<GroupWait>& waits, const GroupWait& first) {
  std::vector<const GroupWait*> seen;
  for (const GroupWait* wait = &first; std::find(seen.begin(), seen.end(), wait) == seen.end();) {
    seen.push_back(wait);
    GroupWait root = *wait;
    std::erase_if(root.missing, [&](int64_t one) { return wait_of(waits, one) != nullptr; });
    if (!root.missing.empty()) return root;
    wait = wait_of(waits, wait->missing.front());
  }
  GroupWait wait = first;
  wait.circular = true;
  return wait;
}

}  // namespace

std::optional<GroupWait> longest_group_wait(const ProgramRun& run) {
  const std::vector<GroupWait> waits = group_waits(run, kWholeRun);
  return waits.empty() ? std::nullopt : std::optional(waits.front());
}

std::optional<GroupWait> root_of_group_wait(const ProgramRun& run, int64_t rank, int64_t as_of_ns) {
  const std::vector<GroupWait> waits = group_waits(run, as_of_ns);
  const GroupWait* first = wait_of(waits, rank);
  if (first == nullptr) return std::nullopt;
  GroupWait root = root_of(waits, *first);
  for (const GroupWait& wait : waits)
    if (root_of(waits, wait).missing == root.missing)
      for (const int64_t waiting : wait.waiting)
        if (!has_rank(root.victims, waiting)) root.victims.push_back(waiting);
  std::sort(root.victims.begin(), root.victims.end());
  return root;
}

bool waits_in_group(const ProgramRun& run, int64_t rank) {
  const auto place = static_cast<size_t>(rank);
  if (place >= std::min(run.ranks.size(), run.outcome.ranks.size())) return false;
  std::map<Key, Members> all;
  count(run, place, kWholeRun, &all);
  return std::any_of(all.begin(), all.end(), [&](const auto& group) {
    const Member& member = group.second.at(rank);
    return member.ended < member.entered;
  });
}

}  // namespace lockstep
