#include "sim/tools/explain/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>

#include "sim/tools/explain/flight_calls.h"
#include "sim/tools/explain/flight_counts.h"
#include "sim/tools/explain/flight_groups.h"
#include "sim/tools/explain/flight_lateness.h"
#include "sim/tools/explain/flight_mismatch.h"
#include "sim/tools/explain/flight_missed.h"
#include "sim/tools/explain/flight_transfers.h"
#include "sim/tools/explain/stages.h"

namespace lockstep {
namespace {

constexpr int64_t kEnoughFollow = 8;

class FlightAttribution {
 public:
  FlightAttribution(const std::vector<FlightDump>& dumps, const RankSet& sent_more)
      : dumps_(dumps), sent_more_(sent_more), groups_(flight_groups(dumps, &ambiguous_)) {
    for (const FlightDump& dump : dumps) {
      dumped_.insert(dump.rank);
      only_logs_ &= dump.from_log;
      if (dump.lost_numbers) lost_numbers_.insert(dump.rank);
    }
    absent_ = ranks_without_dump(dumps, groups_);
    for (const RankSet* known : {&dumped_, &absent_})
      if (!known->empty()) ranks_ = std::max(ranks_, *known->rbegin() + 1);
  }

  FlightFinding run() {
    finding_.ranks = ranks_;
    if (const RankSet others = of_other_moments(groups_); !others.empty()) {
      leave_undecided(others, whether_same_moment(others), &finding_);
      return std::move(finding_);
    }
    if (find_mismatch(true)) return std::move(finding_);
    for (const auto& [name, group] : groups_) wait_in(name, group);
    find_transfers();
    for (const auto& [name, group] : groups_) find_held(name, group);
    for (const auto& [name, group] : groups_) find_unstarted(name, group);
    for (const auto& [name, group] : groups_)
      if (group.gloo) find_late(name, group);
    conclude();
    // One that all went through explains no hang, but it is all that there is.
    if (finding_.kind == FlightClass::nothing && finding_.decided) find_mismatch(false);
    return std::move(finding_);
  }

 private:
  void place(FlightClass kind, const std::string& name, const GroupRecord& group, int64_t sequence,
             const std::string& operation) {
    if (finding_.kind != FlightClass::nothing) return;
    finding_.kind = kind;
    finding_.group = name;
    finding_.description = group.description;
    finding_.sequence = sequence;
    finding_.operation = operation;
    const auto arrivals = group.collectives.find(sequence);
    if (arrivals == group.collectives.end()) return;
    for (const FlightArrival& arrival : arrivals->second)
      finding_.timeout_ms = std::max(finding_.timeout_ms, arrival.entry->timeout_ms);
  }

  void doubt_for_counts() {
    if (finding_.kind != FlightClass::nothing || !finding_.decided) return;
    for (const CountsApart& apart : counts_apart(groups_)) {
      finding_.candidates.insert(apart.behind.begin(), apart.behind.end());
      doubt(what_is_not_known(apart));
    }
  }

  bool find_mismatch(bool open) {
    for (const auto& [name, group] : groups_) {
      auto found = first_mismatch(group);
      if (!found || found->open != open) continue;
      place(FlightClass::mismatch, name, group, found->sequence, "");
      finding_.difference = found->difference;
      add_sent_more(&*found);
      split(*found, group, group.members.size() + (group.ranks ? 0 : absent_.size()));
      if (group.from_log && !group.ranks)
        doubt(fmt::format("the other members of group {}: logs do not say", name));
      doubt_for_ambiguous();
      return true;
    }
    return false;
  }

  // Gloo ends a process that is sent more than it asked for: of two sizes it called the smaller.
  void add_sent_more(FlightMismatch* found) {
    if (found->difference != Difference::size || found->sides.size() != 2) return;
    MismatchSide& one = found->sides.begin()->second;
    MismatchSide& other = found->sides.rbegin()->second;
    for (const int64_t rank : sent_more_) {
      if (!absent_.contains(rank)) continue;
      (one.elements < other.elements ? one : other).ranks.insert(rank);
      finding_.evidence.push_back(
          fmt::format("rank {} left no dump, and was sent more than it asked for", rank));
    }
  }

  // The few are guilty where more than half agree; of two ranks nobody can tell.
  void split(const FlightMismatch& found, const GroupRecord& group, size_t count) {
    const auto most = std::max_element(
        found.sides.begin(), found.sides.end(),
        [](const auto& a, const auto& b) { return a.second.ranks.size() < b.second.ranks.size(); });
    const bool majority = 2 * most->second.ranks.size() > count;
    for (const auto& [key, side] : found.sides) {
      finding_.evidence.push_back(fmt::format("{}: {}", rank_list(side.ranks), side.what));
      if (key == most->first && majority)
        finding_.victims = side.ranks;
      else
        (majority ? finding_.guilty : finding_.candidates)
            .insert(side.ranks.begin(), side.ranks.end());
    }
    finding_.decided = majority;
    if (!majority) {
      doubt("which call was intended: neither side is a majority");
      doubt_for_uncounted(group);
      return;
    }
    finding_.operation = most->second.operation;
    finding_.kind = class_of_mismatch(group, found.sequence, finding_.guilty, finding_.victims);
    for (const int64_t rank : finding_.guilty)
      if (finding_.victims.erase(rank) > 0)
        doubt(fmt::format("what rank {} called: its dump holds several of that number", rank));
  }

  // Members that left no dump count on neither side.
  void doubt_for_uncounted(const GroupRecord& group) {
    RankSet uncounted;
    for (const int64_t rank : absent_)
      if (!sent_more_.contains(rank) && (!group.ranks || group.members.contains(rank)))
        uncounted.insert(rank);
    if (!uncounted.empty())
      doubt(fmt::format("what {} called: no dump of it", rank_list(uncounted)));
  }

  // Who waits for whom: in a collective that somebody of the group has not entered.
  void wait_in(const std::string& name, const GroupRecord& group) {
    for (const auto& [sequence, arrivals] : group.collectives) {
      RankSet here, began;
      for (const FlightArrival& arrival : arrivals) {
        if (!is_waiting(group, arrival)) continue;
        here.insert(arrival.rank);
        if (arrival.entry->started || !dump_of(arrival.rank).tells_starts)
          began.insert(arrival.rank);
      }
      if (here.empty()) continue;
      // Gloo marks what timed out like what completed.
      if (!group.gloo)
        for (const int64_t rank : here)
          waiting_.try_emplace(rank,
                               FlightMissed{name, sequence, arrivals.front().entry->operation, {}});
      for (const int64_t rank : group.members) {
        if (here.contains(rank) || !dumped_.contains(rank)) continue;
        const auto status = group.status.find(rank);
        if (status == group.status.end()) {
          unknown_.insert(rank);
        } else if (status->second.enqueued < sequence) {
          miss(rank, {name, sequence, arrivals.front().entry->operation, here, false,
                      first_call_ns(arrivals, here)});
          waits_.insert(here.begin(), here.end());
          began_.insert(began.begin(), began.end());
        }
      }
    }
    any_gloo_ |= group.gloo;
    if (!group.gloo || group.ranks || group.collectives.empty()) return;
    const auto& [last, there] = *group.collectives.rbegin();
    if (there.size() == 1 && dumps_.size() > 1)
      alone_.emplace(
          there.front().entry,
          fmt::format("the other members of group {}: only rank {} recorded its collective {}",
                      name, there.front().rank, last));
  }

  // Of several, what others wait in for the longest: that is where it stands.
  void miss(int64_t rank, const FlightMissed& missed) {
    const auto [at, fresh] = missed_.try_emplace(rank, missed);
    if (!fresh && missed.since_ns < at->second.since_ns) at->second = missed;
  }

  void find_transfers() {
    transfers_ = open_transfers(dumps_, groups_);
    waits_.insert(transfers_.waiting.begin(), transfers_.waiting.end());
    for (const auto& [rank, side] : transfers_.missing)
      if (side.is_sure() && dumped_.contains(rank))
        missed_.try_emplace(
            rank, FlightMissed{side.group, side.sequence, side.operation, side.waiting, true});
    for (const auto& [rank, side] : transfers_.unstarted)
      unstarted_.try_emplace(
          rank, FlightMissed{side.group, side.sequence, side.operation, side.waiting, true});
  }

  void find_held(const std::string& name, const GroupRecord& group) {
    if (group.gloo) return;
    for (const auto& [sequence, arrivals] : group.collectives) {
      if (is_missed(group, sequence)) continue;  // then nobody is done, whatever a status counts
      RankSet completed;
      for (const auto& [rank, status] : group.status)
        if (status.completed >= sequence) completed.insert(rank);
      for (const FlightArrival& arrival : arrivals) {
        if (!is_waiting(group, arrival) || !is_symmetric(arrival.entry->operation)) continue;
        if (completed.empty() || held_.contains(arrival.rank)) continue;
        held_.emplace(arrival.rank,
                      FlightMissed{name, sequence, arrival.entry->operation, completed});
      }
    }
  }

  // All entered, some began and others did not: what they do before keeps these.
  void find_unstarted(const std::string& name, const GroupRecord& group) {
    if (group.gloo) return;
    for (const auto& [sequence, arrivals] : group.collectives) {
      if (!is_symmetric(arrivals.front().entry->operation) || is_missed(group, sequence)) continue;
      RankSet began, behind;
      for (const FlightArrival& arrival : arrivals) {
        if (!is_waiting(group, arrival)) continue;
        if (arrival.entry->started)
          began.insert(arrival.rank);
        else if (waits_first_in(*arrival.entry, dump_of(arrival.rank)))
          behind.insert(arrival.rank);
      }
      if (began.empty() || behind.empty()) continue;
      waits_.insert(began.begin(), began.end());
      began_.insert(began.begin(), began.end());
      for (const int64_t rank : behind)
        unstarted_.try_emplace(
            rank, FlightMissed{name, sequence, arrivals.front().entry->operation, began});
    }
  }

  void find_late(const std::string& name, const GroupRecord& group) {
    CallTimes created = call_times(group);
    for (const auto& [sequence, arrivals] : group.collectives) {
      const auto first = std::min_element(arrivals.begin(), arrivals.end(), [](auto& a, auto& b) {
        return a.entry->created_ns < b.entry->created_ns;
      });
      const FlightLateness late = lateness_for(groups_, group, arrivals, *first, &created);
      if (late.ranks.empty() || went_on(group, sequence, first->rank, late.first_ns)) continue;
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
                 const std::vector<FlightArrival>& arrivals, const FlightLateness& late) {
    for (const int64_t rank : late.ranks)
      late_.try_emplace(rank, FlightMissed{name, sequence, first.entry->operation, {}});
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

  void accuse(const char* what, FlightClass kind, int64_t rank, const FlightMissed& missed) {
    const GroupRecord& group = groups_.at(missed.group);
    place(kind, missed.group, group, missed.sequence, missed.operation);
    finding_.guilty.insert(rank);
    never_by_logs_ += kind == FlightClass::never_entered && dump_of(rank).from_log ? 1 : 0;
    finding_.evidence.push_back(fmt::format(
        "rank {} {} {} {} of group {} ({}){}", rank, what,
        missed.operation.empty() ? "collective" : missed.operation, missed.sequence, missed.group,
        group.description, missed.others.empty() ? "" : ": " + rank_list(missed.others)));
  }

  void accuse_of_missing(int64_t rank, const FlightMissed& missed) {
    if (!missed.transfer) never_in_[missed.group].insert(rank);
    accuse(missed.transfer ? "never called its side of" : "never entered",
           FlightClass::never_entered, rank, missed);
  }

  void doubt_for_transfers() {
    for (const auto& [rank, side] : transfers_.missing) {
      if (missed_.contains(rank) || !dumped_.contains(rank) || waits_.contains(rank)) continue;
      finding_.candidates.insert(rank);
      doubt(whether_missing(rank, side));
    }
  }

  void conclude() {
    for (const auto& [rank, missed] : late_) {
      accuse("came after the time-out to", FlightClass::late, rank, missed);
      doubt_for_unrecorded(rank);
    }
    if (!late_.empty()) finding_.lateness_ms = lateness_ms_;
    size_t never = 0;
    for (const auto& [rank, missed] : missed_) {
      if (waits_.contains(rank) || late_.contains(rank) || held_.contains(rank)) continue;
      if (unstarted_.contains(rank)) continue;  // what it called before keeps it
      if (waits_alone(rank, missed)) continue;
      ++never;
      accuse_of_missing(rank, missed);
      if (waits_in_point_to_point(dump_of(rank)))
        doubt(fmt::format("what rank {} waits for in a send or receive", rank));
      else
        doubt_for_waiting(rank);
    }
    for (const auto& [rank, missed] : held_)
      accuse("did not complete what its peers completed,", FlightClass::held, rank, missed);
    doubt_for_many();
    doubt_for_many_holders();
    for (const auto& [rank, missed] : unstarted_)
      if (!held_.contains(rank) && !began_.contains(rank) && !transfers_.waiting.contains(rank))
        accuse("never began", FlightClass::not_started, rank, missed);
    if (any_gloo_ && never > 1)
      doubt("which of them failed first: Gloo does not record what completed");
    if (never_by_logs_ > 1)
      doubt("whether one of them waits for another: logs mention only the groups that timed out");
    if (finding_.guilty.empty() && !missed_.empty() && finding_.decided) {
      for (const auto& [rank, missed] : missed_) finding_.candidates.insert(rank);
      finding_.kind = FlightClass::never_entered;
      doubt("a first rank: the waiting ranks wait for each other");
    }
    finding_.victims.insert(waits_.begin(), waits_.end());
    for (const auto& [rank, waiting] : waiting_) finding_.victims.insert(rank);
    doubt_for_transfers();
    doubt_for_absent();
    doubt_for_counts();
    finding_.times_unclear = !unaligned_.empty();
    if (!unaligned_.empty()) {
      doubt(
          fmt::format("whether {} came after the time-out: too few collectives came before it to "
                      "align clocks by",
                      rank_list(unaligned_)));
      finding_.candidates.insert(unaligned_.begin(), unaligned_.end());
    }
    doubt_for_point_to_point();
    if (any_gloo_ && finding_.kind == FlightClass::nothing)
      finding_.evidence.push_back(
          "no rank is missing or late; Gloo's dumps do not distinguish time-outs from completions");
    if (finding_.guilty.empty())
      for (const auto& [entry, why] : alone_) doubt(why);
    doubt_for_ambiguous();
    finding_.only_order_missing = any_gloo_ && never > 1 && finding_.missing.size() == 1;
    for (const int64_t rank : finding_.guilty) finding_.victims.erase(rank);
    for (const int64_t rank : finding_.candidates) finding_.victims.erase(rank);
  }

  // Where most of a group did not come, or half of it and nobody else waits, who came may have been
  // wrong to: a call that the others do not make, or steps that they do not have.
  void doubt_for_many() {
    RankSet waiting = transfers_.waiting;
    for (const auto& [rank, where] : waiting_) waiting.insert(rank);
    for (const auto& [name, ranks] : never_in_) {
      const GroupRecord& group = groups_.at(name);
      const size_t came = group.members.size() - ranks.size();
      const bool half = ranks.size() == came && nobody_else_waits(waiting, ranks, group, groups_);
      if (group.gloo || (ranks.size() <= came && !half)) continue;
      RankSet few;
      for (const int64_t rank : ranks) few.merge(RankSet(missed_.at(rank).others));
      doubt(whether_too_many(few, ranks, name, group));
      finding_.candidates.insert(few.begin(), few.end());
    }
  }

  // What few of a group completed, they may have completed after the others were asked.
  void doubt_for_many_holders() {
    std::map<std::pair<std::string, int64_t>, RankSet> holders;
    for (const auto& [rank, missed] : held_) holders[{missed.group, missed.sequence}].insert(rank);
    for (const auto& [collective, ranks] : holders) {
      const GroupRecord& group = groups_.at(collective.first);
      if (2 * ranks.size() <= group.members.size()) continue;
      const RankSet& few = held_.at(*ranks.begin()).others;
      doubt(whether_taken_later(few, collective.second, collective.first, group));
      finding_.candidates.insert(few.begin(), few.end());
    }
  }

  // Of who waits in sends and receives nothing here says for whom.
  void doubt_for_point_to_point() {
    if (finding_.kind != FlightClass::nothing || !finding_.decided) return;
    RankSet waiting;
    for (const int64_t rank : dumped_)
      if (ends_in_point_to_point(dump_of(rank))) waiting.insert(rank);
    if (waiting.empty()) return;
    finding_.victims.insert(waiting.begin(), waiting.end());
    doubt(fmt::format("the peers that hold up {} in sends or receives", rank_list(waiting)));
  }

  // Gloo's recorder keeps no send or receive.
  void doubt_for_unrecorded(int64_t rank) {
    if (const int64_t count = unrecorded_transfers(dump_of(rank)); count > 0)
      doubt(
          fmt::format("whether rank {} waited in a send or receive: it made {} of them, and Gloo's "
                      "recorder keeps none",
                      rank, count));
  }

  // Who waits in a collective that all have entered may do nothing else.
  void doubt_for_waiting(int64_t rank) {
    doubt_for_unrecorded(rank);
    const auto found = waiting_.find(rank);
    if (found == waiting_.end()) return;
    const FlightMissed& waiting = found->second;
    doubt(fmt::format("why {} {} of group {} ({}), which all its ranks entered, does not complete",
                      waiting.operation, waiting.sequence, waiting.group,
                      groups_.at(waiting.group).description));
    for (const FlightArrival& arrival : groups_.at(waiting.group).collectives.at(waiting.sequence))
      finding_.candidates.insert(arrival.rank);
  }

  // Whose last call nobody else tells of waits, as far as is known, for a rank that left no dump.
  bool waits_alone(int64_t rank, const FlightMissed& missed) {
    const auto alone = alone_.find(last_call(dump_of(rank)));
    if (alone == alone_.end()) return false;
    place(FlightClass::never_entered, missed.group, groups_.at(missed.group), missed.sequence,
          missed.operation);
    waits_.insert(rank);
    doubt(alone->second);
    return true;
  }

  void doubt_for_absent() {
    if (!absent_.empty() && late_.empty()) {
      doubt(fmt::format("the {} of {}: dead, or {}", only_logs_ ? "log or dump" : "dump",
                        rank_list(absent_), only_logs_ ? "none was given" : "never asked for one"));
      finding_.candidates.insert(absent_.begin(), absent_.end());
    }
    if (!lost_numbers_.empty())
      doubt(
          fmt::format("what {} called in which group: its recorder numbers the calls of all groups "
                      "together, and its ring has lost the first ones",
                      rank_list(lost_numbers_)));
    finding_.candidates.insert(lost_numbers_.begin(), lost_numbers_.end());
    if (!unknown_.empty() && (any_gloo_ || !finding_.victims.empty())) {
      doubt(fmt::format("the position of {} in each group", rank_list(unknown_)));
      finding_.candidates.insert(unknown_.begin(), unknown_.end());
    }
    if (finding_.guilty.empty() && finding_.decided && !finding_.victims.empty())
      doubt(
          "the rank that blocks the others: every rank with evidence entered the call that they "
          "wait in");
  }

  void doubt_for_ambiguous() {
    for (const std::string& name : ambiguous_)
      doubt(fmt::format("the members of group {}: dumps disagree", name));
    if (finding_.decided) return;
    finding_.accused = finding_.guilty;
    finding_.candidates.insert(finding_.guilty.begin(), finding_.guilty.end());
    finding_.guilty.clear();
  }

  void doubt(const std::string& why) {
    finding_.decided = false;
    finding_.missing.push_back(why);
  }

  const std::vector<FlightDump>& dumps_;
  const RankSet& sent_more_;
  std::set<std::string> ambiguous_;
  const std::map<std::string, GroupRecord> groups_;
  RankSet dumped_, absent_, unknown_, unaligned_, lost_numbers_;
  std::map<int64_t, FlightMissed> missed_, held_, late_, unstarted_;
  OpenTransfers transfers_;
  std::map<std::string, RankSet> never_in_;          // by group: who is named for not entering
  std::map<int64_t, FlightMissed> waiting_;          // the first collective in which a rank waits
  RankSet waits_;                                    // for somebody who did not enter, or came late
  RankSet began_;                                    // of these, whose GPU does, as far as is told
  std::map<const FlightEntry*, std::string> alone_;  // last of its group, of one rank only
  std::optional<double> lateness_ms_;
  bool any_gloo_ = false, only_logs_ = true;
  int64_t never_by_logs_ = 0;  // ranks that never entered something, as only their logs tell
  int64_t ranks_ = 0;
  FlightFinding finding_;
};

}  // namespace

FlightFinding attribute(const std::vector<FlightDump>& dumps, const RankSet& sent_more) {
  return FlightAttribution(dumps, sent_more).run();
}

}  // namespace lockstep
