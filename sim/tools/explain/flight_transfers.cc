#include "sim/tools/explain/flight_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

// One end of what a group's rank sends another.
struct Side {
  std::vector<const FlightEntry*> open;
  size_t called = 0;
};

struct Channel {
  int64_t source = -1, destination = -1;
  Side send, receive;
};

using ChannelName = std::tuple<std::string, int64_t, int64_t>;

// The first call of a rank that is not done keeps all that it called after it.
const FlightEntry* first_open(const FlightDump& dump) {
  const auto found =
      std::find_if(dump.entries.begin(), dump.entries.end(),
                   [](const FlightEntry& entry) { return !entry.done && !entry.gloo; });
  return found == dump.entries.end() ? nullptr : &*found;
}

// What is coalesced runs together.
bool run_together(const FlightEntry& a, const FlightEntry& b) {
  return a.point_to_point && b.point_to_point && a.group == b.group &&
         a.point_to_point_sequence == b.point_to_point_sequence;
}

class Transfers {
 public:
  Transfers(const std::vector<FlightDump>& dumps, const std::map<std::string, GroupRecord>& groups)
      : groups_(groups) {
    for (const FlightDump& dump : dumps) {
      first_[dump.rank] = first_open(dump);
      if (is_whole(dump)) whole_.insert(dump.rank);
      if (dump.tells_starts) tells_starts_.insert(dump.rank);
      for (const FlightEntry& entry : dump.entries) take(dump.rank, entry);
    }
  }

  OpenTransfers open() {
    for (const auto& [name, channel] : channels_) {
      look_at(channel.source, channel.send, channel.destination, channel.receive);
      look_at(channel.destination, channel.receive, channel.source, channel.send);
    }
    return std::move(found_);
  }

 private:
  void take(int64_t rank, const FlightEntry& entry) {
    if (!entry.point_to_point || entry.gloo || entry.peer < 0) return;
    const auto group = groups_.find(entry.group);
    if (group == groups_.end() || !group->second.ranks) return;
    const std::vector<int64_t>& ranks = *group->second.ranks;
    const auto size = static_cast<int64_t>(ranks.size());
    if (entry.own_number >= size || entry.peer >= size) return;
    if (ranks[static_cast<size_t>(entry.own_number)] != rank) return;
    const int64_t peer = ranks[static_cast<size_t>(entry.peer)];
    const int64_t source = entry.sends ? rank : peer, destination = entry.sends ? peer : rank;
    Channel& channel = channels_[{entry.group, source, destination}];
    channel.source = source;
    channel.destination = destination;
    Side& side = entry.sends ? channel.send : channel.receive;
    ++side.called;
    if (!entry.done) side.open.push_back(&entry);
  }

  void look_at(int64_t rank, const Side& own, int64_t peer, const Side& other) {
    if (own.open.empty() || !run_together(*first_[rank], *own.open.front())) return;
    const FlightEntry* first = first_[peer];
    if (!other.open.empty())
      return look_at_both(rank, *own.open.front(), peer, *other.open.front());
    // What the peer is done with may be what the rank waits for, and got lost on its way.
    const bool whole = whole_.contains(rank) && whole_.contains(peer);
    if (whole && other.called >= own.called) return;
    found_.waiting.insert(rank);
    if (first == nullptr) miss(rank, peer, whole, *own.open.front());
  }

  // `rank` waits in nothing else.
  void look_at_both(int64_t rank, const FlightEntry& own, int64_t peer, const FlightEntry& other) {
    const FlightEntry* first = first_[peer];
    if (first != nullptr && !run_together(*first, other)) {
      found_.waiting.insert(rank);
    } else if (tells_starts_.contains(rank) && !own.started && other.started) {
      found_.waiting.insert(peer);
      found_.unstarted.try_emplace(
          rank, MissingSide{own.group, own.point_to_point_sequence, own.operation, {peer}});
    }
  }

  void miss(int64_t rank, int64_t peer, bool counted, const FlightEntry& entry) {
    MissingSide& side =
        found_.missing
            .try_emplace(
                peer, MissingSide{entry.group, entry.point_to_point_sequence, entry.operation, {}})
            .first->second;
    side.waiting.insert(rank);
    side.counted |= counted;
  }

  const std::map<std::string, GroupRecord>& groups_;
  std::map<int64_t, const FlightEntry*> first_;
  RankSet whole_, tells_starts_;
  std::map<ChannelName, Channel> channels_;
  OpenTransfers found_;
};

}  // namespace

OpenTransfers open_transfers(const std::vector<FlightDump>& dumps,
                             const std::map<std::string, GroupRecord>& groups) {
  return Transfers(dumps, groups).open();
}

std::string whether_missing(int64_t rank, const MissingSide& side) {
  return fmt::format(
      "whether rank {} called its side of {} {} of group {}, in which {} waits: rings that hold "
      "all of their calls",
      rank, side.operation, side.sequence, side.group, rank_list(side.waiting));
}

}  // namespace lockstep
