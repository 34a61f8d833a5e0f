#include "sim/tools/explain/flight_groups.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kDefaultGroup = "default_pg";

class FlightGroups {
 public:
  explicit FlightGroups(std::set<std::string>* ambiguous) : ambiguous_(ambiguous) {}

  std::map<std::string, GroupRecord> of(const std::vector<FlightDump>& dumps) {
    for (const FlightDump& dump : dumps) {
      status_differs_ |= dump.status_differs;
      for (const FlightEntry& entry : dump.entries)
        groups_[entry.group].point_to_point |=
            entry.point_to_point || entry.point_to_point_sequence > 0;
    }
    for (const FlightDump& dump : dumps) take(dump);
    add_to_default_groups(dumps);
    return std::move(groups_);
  }

 private:
  void take(const FlightDump& dump) {
    for (const auto& [name, group] : dump.groups) {
      GroupRecord& into = groups_[name];
      into.description = group.description;
      if (group.ranks && group.ranks != into.ranks) {
        if (into.ranks && *into.ranks != *group.ranks) ambiguous_->insert(name);
        into.ranks = group.ranks;
        into.members.insert(group.ranks->begin(), group.ranks->end());
      }
      into.members.insert(dump.rank);
      into.from_log |= dump.from_log;
    }
    for (const auto& [name, status] : dump.status)
      if (!groups_[name].point_to_point && !status_differs_)
        groups_[name].status[dump.rank] = status;
    for (const FlightEntry& entry : dump.entries) take(dump.rank, entry);
    if (is_whole(dump))
      for (const auto& [name, group] : dump.groups) groups_[name].status.try_emplace(dump.rank);
  }

  // All ranks are in the default group, whose members Gloo's dumps do not list: who called
  // something, and nothing of it, has entered none of its collectives. Of an empty dump that is not
  // known.
  void add_to_default_groups(const std::vector<FlightDump>& dumps) {
    for (auto& [name, group] : groups_) {
      if (!group.gloo || group.ranks || group.description != kDefaultGroup) continue;
      for (const FlightDump& dump : dumps) {
        const bool empty = dump.entries.empty();
        if (dump.from_log || (!empty && dump.entries.front().record > 0)) continue;
        group.members.insert(dump.rank);
        if (!empty) group.status.try_emplace(dump.rank);
      }
    }
  }

  void take(int64_t rank, const FlightEntry& entry) {
    GroupRecord& group = groups_[entry.group];
    group.gloo |= entry.gloo;
    if (entry.point_to_point && entry.sequence <= 0) return;
    FlightStatus& status = group.status[rank];
    status.enqueued = std::max(status.enqueued, entry.sequence);
    if (entry.point_to_point) return;
    if (entry.done && !entry.gloo) status.completed = std::max(status.completed, entry.sequence);
    group.collectives[entry.sequence].push_back({rank, &entry});
  }

  std::map<std::string, GroupRecord> groups_;
  std::set<std::string>* ambiguous_;
  bool status_differs_ = false;  // of a dump, and so of those without entries to tell by
};

}  // namespace

// A recorder that was reset begins at 0, too, but not the numbers of its groups.
bool is_whole(const FlightDump& dump) {
  if (dump.called_nothing) return true;
  if (dump.from_log || dump.entries.empty() || dump.entries.front().record > 0) return false;
  std::set<std::string_view> begun;
  return std::all_of(dump.entries.begin(), dump.entries.end(), [&](const FlightEntry& entry) {
    if (!begun.insert(entry.group).second) return true;
    return entry.sequence <= 1 && entry.point_to_point_sequence <= 1;
  });
}

std::map<std::string, GroupRecord> flight_groups(const std::vector<FlightDump>& dumps,
                                                 std::set<std::string>* ambiguous) {
  return FlightGroups(ambiguous).of(dumps);
}

RankSet ranks_without_dump(const std::vector<FlightDump>& dumps,
                           const std::map<std::string, GroupRecord>& groups) {
  constexpr int64_t kMost = 100'000;
  RankSet dumped, absent;
  int64_t ranks = 0;
  for (const FlightDump& dump : dumps) {
    dumped.insert(dump.rank);
    ranks = std::max({ranks, dump.rank, dump.ranks_at_least});
  }
  for (const auto& [name, group] : groups)
    absent.insert(group.members.begin(), group.members.end());
  for (int64_t rank = 0; rank < std::min(ranks, kMost); ++rank) absent.insert(rank);
  for (const int64_t rank : dumped) absent.erase(rank);
  return absent;
}

}  // namespace lockstep
