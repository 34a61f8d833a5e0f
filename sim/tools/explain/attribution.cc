#include "sim/tools/explain/attribution.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>

#include "sim/tools/explain/flight_groups.h"

namespace lockstep {
namespace {

constexpr int64_t kEnoughFollow = 8;
constexpr size_t kFewCollectives = 8;  // of a group, to align clocks by

// Completes at one member only when all have entered, whatever the transport.
bool is_symmetric(const std::string& operation) {
  constexpr std::array kNames = {"all_reduce",       "allreduce_coalesced",  "all_gather",
                                 "_all_gather_base", "_allgather_base",      "reduce_scatter",
                                 "all_to_all",       "_reduce_scatter_base", "barrier"};
  return std::find(kNames.begin(), kNames.end(), operation) != kNames.end();
}

// Of which all members' inputs have one size.
bool has_equal_sizes(const std::string& operation) {
  constexpr std::array kNames = {"all_reduce", "broadcast", "_all_gather_base", "_allgather_base",
                                 "_reduce_scatter_base"};
  return std::find(kNames.begin(), kNames.end(), operation) != kNames.end();
}

class FlightAttribution {
 public:
  explicit FlightAttribution(const std::vector<FlightDump>& dumps)
      : dumps_(dumps), groups_(flight_groups(dumps, &ambiguous_)) {
    for (const FlightDump& dump : dumps) dumped_.insert(dump.rank);
    for (auto& [name, group] : groups_)
      for (const int64_t rank : group.members)
        if (!dumped_.contains(rank)) absent_.insert(rank);
    // Gloo's dumps do not say who is in a group: numbers that are missing tell of a rank.
    int64_t ranks = dumped_.empty() ? 0 : *dumped_.rbegin();
    for (const FlightDump& dump : dumps) ranks = std::max(ranks, dump.ranks_at_least);
    for (int64_t rank = 0; rank < std::min<int64_t>(ranks, 100'000); ++rank)
      if (!dumped_.contains(rank)) absent_.insert(rank);
    for (const RankSet* known : {&dumped_, &absent_})
      if (!known->empty()) ranks_ = std::max(ranks_, *known->rbegin() + 1);
  }

  FlightFinding run() {
    finding_.ranks = ranks_;
    if (find_mismatch()) return std::move(finding_);
    for (const auto& [name, group] : groups_) wait_in(name, group);
    for (const auto& [name, group] : groups_) find_held(name, group);
    for (const auto& [name, group] : groups_)
      if (group.gloo) find_late(name, group);
    conclude();
    return std::move(finding_);
  }

 private:
  // Is it waited for? A communicator's collectives end in their order.
  static bool is_waiting(const GroupRecord& group, const FlightArrival& arrival) {
    if (group.gloo) return true;
    const auto status = group.status.find(arrival.rank);
    return !arrival.entry->done &&
           (status == group.status.end() || status->second.completed < arrival.entry->sequence);
  }

  void place(FlightClass kind, const std::string& name, const GroupRecord& group, int64_t sequence,
             const std::string& operation) {
    if (finding_.kind != FlightClass::nothing) return;
    finding_.kind = kind;
    finding_.group = name;
    finding_.description = group.description;
    finding_.sequence = sequence;
    finding_.operation = operation;
    for (const FlightArrival& arrival : group.collectives.at(sequence))
      finding_.timeout_ms = std::max(finding_.timeout_ms, arrival.entry->timeout_ms);
  }

  bool find_mismatch() {
    for (const auto& [name, group] : groups_)
      for (const auto& [sequence, arrivals] : group.collectives) {
        std::map<std::string, RankSet> sides;
        const std::string& first = arrivals.front().entry->operation;
        for (const FlightArrival& arrival : arrivals) {
          const FlightEntry& entry = *arrival.entry;
          if (entry.operation.empty() || !entry.comparable) continue;  // as of a log
          std::string what = entry.operation;
          if (has_equal_sizes(first) && entry.operation == first && !group.from_log)
            what += " of " + entry.sizes + " " + entry.dtypes;
          sides[what].insert(arrival.rank);
        }
        if (sides.size() < 2) continue;
        place(FlightClass::mismatch, name, group, sequence, "");
        finding_.difference = difference_of(arrivals);
        split(sides, group.members.size() + (group.ranks ? 0 : absent_.size()));
        if (group.from_log && !group.ranks)
          doubt(fmt::format("who else is in group {}: logs do not say", name));
        doubt_for_ambiguous();
        return true;
      }
    return false;
  }

  // The first of them that any two differ in.
  static Difference difference_of(const std::vector<FlightArrival>& arrivals) {
    const auto differ = [&](std::string FlightEntry::*member) {
      return std::any_of(arrivals.begin(), arrivals.end(), [&](const FlightArrival& arrival) {
        return arrival.entry->*member != arrivals.front().entry->*member;
      });
    };
    if (differ(&FlightEntry::operation)) return Difference::operation;
    return differ(&FlightEntry::sizes) ? Difference::size : Difference::dtype;
  }

  // The few are guilty where more than half agree; of two ranks nobody can tell.
  void split(const std::map<std::string, RankSet>& sides, size_t count) {
    const auto most = std::max_element(
        sides.begin(), sides.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const bool majority = 2 * most->second.size() > count;
    for (const auto& [what, ranks] : sides) {
      finding_.evidence.push_back(fmt::format("{}: {}", rank_list(ranks), what));
      if (what == most->first && majority)
        finding_.victims = ranks;
      else
        (majority ? finding_.guilty : finding_.candidates).insert(ranks.begin(), ranks.end());
    }
    finding_.operation = majority ? most->first.substr(0, most->first.find(' ')) : "";
    finding_.decided = majority;
    if (!majority) finding_.missing.push_back("what the program meant: neither side is a majority");
    for (const int64_t rank : finding_.guilty)
      if (finding_.victims.erase(rank) > 0)
        doubt(fmt::format("what rank {} called: its dump holds several of that number", rank));
  }

  // Who waits for whom: in a collective that somebody of the group has not entered.
  void wait_in(const std::string& name, const GroupRecord& group) {
    for (const auto& [sequence, arrivals] : group.collectives) {
      RankSet here;
      for (const FlightArrival& arrival : arrivals)
        if (is_waiting(group, arrival)) here.insert(arrival.rank);
      if (here.empty()) continue;
      // Gloo marks what timed out like what completed.
      if (!group.gloo)
        for (const int64_t rank : here)
          waiting_.try_emplace(rank, Missed{name, sequence, arrivals.front().entry->operation, {}});
      for (const int64_t rank : group.members) {
        if (here.contains(rank) || !dumped_.contains(rank)) continue;
        const auto status = group.status.find(rank);
        if (status == group.status.end()) {
          unknown_.insert(rank);
        } else if (status->second.enqueued < sequence) {
          missed_.try_emplace(rank,
                              Missed{name, sequence, arrivals.front().entry->operation, here});
          waits_.insert(here.begin(), here.end());
        }
      }
    }
    any_gloo_ |= group.gloo;
    if (!group.gloo || group.collectives.empty()) return;
    const auto& [last, there] = *group.collectives.rbegin();
    if (there.size() == 1 && dumps_.size() > 1)
      alone_.emplace(there.front().entry,
                     fmt::format("who else is in group {}: only rank {} tells of its collective {}",
                                 name, there.front().rank, last));
  }

  static bool is_missed(const GroupRecord& group, int64_t sequence) {
    return std::any_of(group.status.begin(), group.status.end(),
                       [&](const auto& one) { return one.second.enqueued < sequence; });
  }

  void find_held(const std::string& name, const GroupRecord& group) {
    if (group.gloo) return;
    for (const auto& [sequence, arrivals] : group.collectives)
      for (const FlightArrival& arrival : arrivals) {
        if (!is_waiting(group, arrival) || !is_symmetric(arrival.entry->operation)) continue;
        if (is_missed(group, sequence)) continue;  // then nobody is done, whatever a status counts
        RankSet completed;
        for (const auto& [rank, status] : group.status)
          if (rank != arrival.rank && status.completed >= sequence) completed.insert(rank);
        if (completed.empty() || held_.contains(arrival.rank)) continue;
        held_.emplace(arrival.rank,
                      Missed{name, sequence, arrival.entry->operation, std::move(completed)});
      }
  }

  using Created = std::map<int64_t, std::map<int64_t, int64_t>>;  // by rank, by sequence number

  // Nanoseconds by which one rank's clock is ahead of another's: the median difference at the
  // newest collectives of both before this one, where most of them agree. One that a rank was late
  // for says nothing.
  static std::optional<int64_t> clock_offset(const std::map<int64_t, int64_t>& base,
                                             const std::map<int64_t, int64_t>& other,
                                             int64_t before, int64_t tolerance_ns) {
    std::vector<int64_t> differences;
    for (auto at = base.lower_bound(before); at != base.begin() && differences.size() < 21;) {
      --at;
      if (const auto same = other.find(at->first); same != other.end())
        differences.push_back(same->second - at->second);
    }
    return usual_difference(std::move(differences), tolerance_ns);
  }

  // The same by the collectives of all groups, for groups that are used seldom.
  std::optional<int64_t> clock_offset_by_all(const FlightArrival& base, int64_t other,
                                             int64_t tolerance_ns) const {
    std::vector<int64_t> differences;
    for (const auto& [name, group] : groups_)
      for (const auto& [sequence, arrivals] : group.collectives) {
        const FlightEntry *of_base = nullptr, *of_other = nullptr;
        for (const FlightArrival& arrival : arrivals) {
          if (arrival.rank == base.rank) of_base = arrival.entry;
          if (arrival.rank == other) of_other = arrival.entry;
        }
        if (of_base != nullptr && of_other != nullptr &&
            of_base->created_ns < base.entry->created_ns)
          differences.push_back(of_other->created_ns - of_base->created_ns);
      }
    return usual_difference(std::move(differences), tolerance_ns);
  }

  static std::optional<int64_t> usual_difference(std::vector<int64_t> differences,
                                                 int64_t tolerance_ns) {
    if (differences.size() < 2) return std::nullopt;
    const auto middle = differences.begin() + static_cast<ptrdiff_t>(differences.size() / 2);
    std::nth_element(differences.begin(), middle, differences.end());
    const auto agree = std::count_if(
        differences.begin(), differences.end(),
        [&](int64_t other_one) { return std::abs(other_one - *middle) <= tolerance_ns; });
    if (2 * static_cast<size_t>(agree) <= differences.size()) return std::nullopt;
    return *middle;
  }

  struct Late {
    RankSet ranks;
    bool aligned = true;                  // clocks were, of all these ranks
    int64_t first_ns = 0, newest_ns = 0;  // when one of them came, by the clock of who came first
  };

  Late late_for(const GroupRecord& group, const std::vector<FlightArrival>& arrivals,
                const FlightArrival& first, Created* created) const {
    Late late;
    const int64_t timeout_ns = first.entry->timeout_ms * 1'000'000;
    for (const FlightArrival& arrival : arrivals) {
      if (arrival.rank == first.rank || timeout_ns <= 0) continue;
      auto offset = clock_offset((*created)[first.rank], (*created)[arrival.rank],
                                 arrival.entry->sequence, timeout_ns / 8);
      if (!offset && group.collectives.size() <= kFewCollectives)
        offset = clock_offset_by_all(first, arrival.rank, timeout_ns / 8);
      const int64_t came = arrival.entry->created_ns - offset.value_or(0);
      if (came - first.entry->created_ns <= timeout_ns) continue;
      late.first_ns = late.ranks.empty() ? came : std::min(late.first_ns, came);
      late.newest_ns = std::max(late.newest_ns, came);
      late.ranks.insert(arrival.rank);
      late.aligned &= offset.has_value();
    }
    return late;
  }

  // Those that had timed out would not have: then the late ones came in time after all.
  static bool went_on(const GroupRecord& group, int64_t sequence, const FlightArrival& first,
                      const Late& late) {
    const auto after = group.collectives.upper_bound(sequence);
    return std::any_of(after, group.collectives.end(), [&](const auto& later) {
      return std::any_of(
          later.second.begin(), later.second.end(), [&](const FlightArrival& arrival) {
            return arrival.rank == first.rank && arrival.entry->created_ns > late.first_ns;
          });
    });
  }

  void find_late(const std::string& name, const GroupRecord& group) {
    Created created;
    for (const auto& [sequence, arrivals] : group.collectives)
      for (const FlightArrival& arrival : arrivals)
        created[arrival.rank][sequence] = arrival.entry->created_ns;
    for (const auto& [sequence, arrivals] : group.collectives) {
      const auto first = std::min_element(arrivals.begin(), arrivals.end(), [](auto& a, auto& b) {
        return a.entry->created_ns < b.entry->created_ns;
      });
      const Late late = late_for(group, arrivals, *first, &created);
      if (late.ranks.empty() || went_on(group, sequence, *first, late)) continue;
      if (late.aligned) {
        take_late(name, sequence, *first, arrivals, late);
        return;  // what follows a time-out is its consequence
      }
      // Where so many followed, clocks are apart and nobody was late.
      if (group.collectives.rbegin()->first - sequence < kEnoughFollow)
        unaligned_.insert(late.ranks.begin(), late.ranks.end());
    }
  }

  void take_late(const std::string& name, int64_t sequence, const FlightArrival& first,
                 const std::vector<FlightArrival>& arrivals, const Late& late) {
    for (const int64_t rank : late.ranks)
      late_.try_emplace(rank, Missed{name, sequence, first.entry->operation, {}});
    for (const FlightArrival& arrival : arrivals)
      if (!late.ranks.contains(arrival.rank)) waits_.insert(arrival.rank);
    if (!lateness_ms_)
      lateness_ms_ = static_cast<double>(late.newest_ns - first.entry->created_ns) / 1e6;
  }

  // Of a rank that left one.
  const FlightDump& dump_of(int64_t rank) const {
    return *std::find_if(dumps_.begin(), dumps_.end(),
                         [&](const FlightDump& dump) { return dump.rank == rank; });
  }

  bool waits_in_point_to_point(int64_t rank) const {
    const std::vector<FlightEntry>& entries = dump_of(rank).entries;
    return std::any_of(entries.begin(), entries.end(), [](const FlightEntry& entry) {
      return entry.point_to_point && !entry.done;
    });
  }

  struct Missed {
    std::string group;
    int64_t sequence;
    std::string operation;
    RankSet others;
  };

  void accuse(const char* what, FlightClass kind, int64_t rank, const Missed& missed) {
    const GroupRecord& group = groups_.at(missed.group);
    place(kind, missed.group, group, missed.sequence, missed.operation);
    finding_.guilty.insert(rank);
    finding_.evidence.push_back(
        fmt::format("rank {} {} {} {} of group {} ({}){}", rank, what, missed.operation,
                    missed.sequence, missed.group, group.description,
                    missed.others.empty() ? "" : ": " + rank_list(missed.others)));
  }

  void conclude() {
    for (const auto& [rank, missed] : late_)
      accuse("came after the time-out to", FlightClass::late, rank, missed);
    if (!late_.empty()) finding_.lateness_ms = lateness_ms_;
    size_t never = 0;
    for (const auto& [rank, missed] : missed_) {
      if (waits_.contains(rank) || late_.contains(rank) || held_.contains(rank)) continue;
      if (waits_alone(rank, missed)) continue;
      ++never;
      accuse("never entered", FlightClass::never_entered, rank, missed);
      if (waits_in_point_to_point(rank))
        doubt(fmt::format("what rank {} waits for in a send or receive", rank));
      else
        doubt_for_waiting(rank);
    }
    for (const auto& [rank, missed] : held_)
      accuse("still holds what peers completed,", FlightClass::held, rank, missed);
    if (any_gloo_ && never > 1)
      doubt("which of them failed first: Gloo does not record what completed");
    if (finding_.guilty.empty() && !missed_.empty() && finding_.decided) {
      for (const auto& [rank, missed] : missed_) finding_.candidates.insert(rank);
      finding_.kind = FlightClass::never_entered;
      doubt("a first rank: those that wait, wait for each other");
    }
    finding_.victims.insert(waits_.begin(), waits_.end());
    for (const auto& [rank, waiting] : waiting_) finding_.victims.insert(rank);
    doubt_for_absent();
    if (!unaligned_.empty()) {
      doubt(
          fmt::format("whether {} came after the time-out: too few collectives came before it to "
                      "align clocks by",
                      rank_list(unaligned_)));
      finding_.candidates.insert(unaligned_.begin(), unaligned_.end());
    }
    if (any_gloo_ && finding_.kind == FlightClass::nothing)
      finding_.evidence.push_back(
          "nobody is missing or late; Gloo's dumps do not tell what timed out from what completed");
    if (finding_.guilty.empty())
      for (const auto& [entry, why] : alone_) doubt(why);
    doubt_for_ambiguous();
    finding_.only_order_missing = any_gloo_ && never > 1 && finding_.missing.size() == 1;
    for (const int64_t rank : finding_.guilty) finding_.victims.erase(rank);
    for (const int64_t rank : finding_.candidates) finding_.victims.erase(rank);
  }

  // Who waits in a collective that all have entered may do nothing else.
  void doubt_for_waiting(int64_t rank) {
    const auto found = waiting_.find(rank);
    if (found == waiting_.end()) return;
    const Missed& waiting = found->second;
    doubt(fmt::format("why {} {} of group {} ({}), which all its ranks entered, does not end",
                      waiting.operation, waiting.sequence, waiting.group,
                      groups_.at(waiting.group).description));
    for (const FlightArrival& arrival : groups_.at(waiting.group).collectives.at(waiting.sequence))
      finding_.candidates.insert(arrival.rank);
  }

  // Whose last call nobody else tells of waits, as far as is known, for a rank that left no dump.
  bool waits_alone(int64_t rank, const Missed& missed) {
    const std::vector<FlightEntry>& entries = dump_of(rank).entries;
    const auto last = std::max_element(
        entries.begin(), entries.end(),
        [](const FlightEntry& a, const FlightEntry& b) { return a.created_ns < b.created_ns; });
    const auto alone = last == entries.end() ? alone_.end() : alone_.find(&*last);
    if (alone == alone_.end()) return false;
    place(FlightClass::never_entered, missed.group, groups_.at(missed.group), missed.sequence,
          missed.operation);
    waits_.insert(rank);
    doubt(alone->second);
    return true;
  }

  void doubt_for_absent() {
    if (!absent_.empty() && late_.empty()) {
      doubt(fmt::format("the dump of {}: dead, or never asked", rank_list(absent_)));
      finding_.candidates.insert(absent_.begin(), absent_.end());
    }
    if (!unknown_.empty() && !finding_.victims.empty()) {
      doubt(fmt::format("where {} was in its groups", rank_list(unknown_)));
      finding_.candidates.insert(unknown_.begin(), unknown_.end());
    }
    if (finding_.guilty.empty() && finding_.decided && !finding_.victims.empty())
      doubt("who holds it up: all ranks of which something is known entered what is waited in");
  }

  void doubt_for_ambiguous() {
    for (const std::string& name : ambiguous_)
      doubt(fmt::format("which ranks group {} has: dumps disagree", name));
    if (finding_.decided) return;
    finding_.candidates.insert(finding_.guilty.begin(), finding_.guilty.end());
    finding_.guilty.clear();
  }

  void doubt(const std::string& why) {
    finding_.decided = false;
    finding_.missing.push_back(why);
  }

  const std::vector<FlightDump>& dumps_;
  std::set<std::string> ambiguous_;
  const std::map<std::string, GroupRecord> groups_;
  RankSet dumped_, absent_, unknown_, unaligned_;
  std::map<int64_t, Missed> missed_, held_, late_;
  std::map<int64_t, Missed> waiting_;                // the first collective in which a rank waits
  RankSet waits_;                                    // for somebody who did not enter, or came late
  std::map<const FlightEntry*, std::string> alone_;  // last of its group, of one rank only
  std::optional<double> lateness_ms_;
  bool any_gloo_ = false;
  int64_t ranks_ = 0;
  FlightFinding finding_;
};

}  // namespace

const char* name_of(FlightClass kind) {
  switch (kind) {
    case FlightClass::nothing:
      return "nothing";
    case FlightClass::never_entered:
      return "never_entered";
    case FlightClass::held:
      return "held";
    case FlightClass::late:
      return "late";
    case FlightClass::mismatch:
      return "mismatch";
    case FlightClass::died:
      return "died";
    case FlightClass::silent:
      return "silent";
    case FlightClass::straggler:
      return "straggler";
  }
  return "nothing";
}

std::string rank_list(const RankSet& ranks) {
  constexpr size_t kMostListed = 20;
  if (ranks.size() > kMostListed)
    return fmt::format("ranks {} and {} more",
                       fmt::join(ranks.begin(), std::next(ranks.begin(), kMostListed), ", "),
                       ranks.size() - kMostListed);
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

void leave_undecided(const RankSet& others, const std::string& why, FlightFinding* finding) {
  finding->decided = false;
  finding->missing.push_back(why);
  finding->candidates.insert(others.begin(), others.end());
  finding->candidates.insert(finding->guilty.begin(), finding->guilty.end());
  finding->guilty.clear();
}

FlightFinding attribute(const std::vector<FlightDump>& dumps) {
  return FlightAttribution(dumps).run();
}

}  // namespace lockstep
