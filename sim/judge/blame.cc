#include "sim/judge/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "sim/judge/rank_view.h"
#include "sim/launch/executor.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

bool tells_core_wait(const Event& event) {
  const auto kind = static_cast<EventKind>(event.kind);
  return kind == EventKind::phase_begin || kind == EventKind::step_end || kind == EventKind::error;
}

}  // namespace

int64_t core_wait_since(const RunOutcome& outcome, int64_t rank, int64_t time_ns) {
  if (rank < 0 || rank >= static_cast<int64_t>(outcome.ranks.size())) return 0;
  int64_t before_ns = 0, last_ns = 0;
  for (const Event& event : outcome.ranks[static_cast<size_t>(rank)].events) {
    if (!tells_core_wait(event)) continue;
    const auto so_far_ns = static_cast<int64_t>(event.value);
    if (event.time_ns <= time_ns) before_ns = std::max(before_ns, so_far_ns);
    last_ns = std::max(last_ns, so_far_ns);
  }
  const ProcessEnd* end = end_of(outcome, rank);
  if (end != nullptr && end->state) last_ns = std::max(last_ns, end->state->core_wait_ns);
  return last_ns - before_ns;
}

int64_t core_wait_of_all_since(const RunOutcome& outcome, int64_t time_ns) {
  int64_t sum_ns = outcome.core_wait_ns;
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank)
    sum_ns += core_wait_since(outcome, static_cast<int64_t>(rank), time_ns);
  return sum_ns;
}

namespace {

// Of the first collective that a rank timed out in; 0: none is known. Where the error does not say
// which one that was, it is the first that has ended on nobody.
int64_t first_timed_out(const std::vector<RankView>& ranks) {
  int64_t ended = 0, first = 0;
  for (const RankView& rank : ranks) ended = std::max<int64_t>(ended, rank.last_end.value_or(0));
  for (const RankView& rank : ranks) {
    if (rank.evidence.error.kind != ErrorKind::timeout) continue;
    const int64_t known = rank.evidence.error.sequence;
    const int64_t sequence = known > 0 ? known : ended + 1;
    if (first == 0 || sequence < first) first = sequence;
  }
  return first;
}

const Event* arrival_at(const RankView& rank, int64_t sequence) {
  const auto found =
      std::find_if(rank.arrivals.begin(), rank.arrivals.end(),
                   [&](const Event& arrival) { return arrival.sequence == sequence; });
  return found == rank.arrivals.end() ? nullptr : &*found;
}

}  // namespace

const Event* pending_in(const RankView& rank) {
  if (rank.primary_done) return nullptr;
  const auto pending = std::find_if(
      rank.arrivals.begin(), rank.arrivals.end(),
      [&](const Event& arrival) { return !rank.last_end || arrival.sequence > *rank.last_end; });
  return pending == rank.arrivals.end() ? nullptr : &*pending;
}

int64_t time_out_ms(const Timeouts& timeouts, const Event& arrival) {
  return arrival.step > 0 ? timeouts.collective_ms : timeouts.construction_ms;
}

std::optional<JointWait> joint_wait(const RunOutcome& outcome, const std::vector<RankView>& then) {
  const int64_t sequence = first_timed_out(then);
  if (sequence == 0) return std::nullopt;
  JointWait wait;
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
  for (const RankView& rank : then) {
    const Event* arrival = arrival_at(rank, sequence);
    if (arrival == nullptr || rank.records_lost) return std::nullopt;
    first_ns = std::min(first_ns, arrival->time_ns);
    if (arrival->time_ns <= last_ns) continue;
    last_ns = arrival->time_ns;
    wait.last = rank.rank;
    wait.arrival = *arrival;
  }
  wait.entered_within_ms = (last_ns - first_ns + 999'999) / 1'000'000;
  wait.given_ms = time_out_ms(outcome.plan.scenario.timeouts, wait.arrival);
  return wait;
}

std::string to_words(const JointWait& wait) {
  const std::string what = collective_text(wait.arrival);
  if (wait.together())
    return fmt::format(
        "the time-out of {} is too short, or the network lost what was sent: all ranks entered {} "
        "within {}",
        duration_text(wait.given_ms), what, duration_text(wait.entered_within_ms));
  return fmt::format(
      "rank {} entered {} {} after the first rank, of the {} that its time-out allows", wait.last,
      what, duration_text(wait.entered_within_ms), duration_text(wait.given_ms));
}

namespace {

// How far a rank came. Ranks do the same things in the same order, but for ends of collectives.
using Progress = std::tuple<int64_t, bool, int64_t, int64_t>;

Progress progress_of(const RankView* view) {
  if (view == nullptr) return {};
  return {last_arrival(view), view->primary_done, view->last_event ? view->last_event->step : -1,
          view->events_in_step};
}

FailureRole role_of_error(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::timeout:
      return FailureRole::waited;
    case ErrorKind::none:  // a CommError that has left no evidence
    case ErrorKind::peer_lost:
    case ErrorKind::closed:
      return FailureRole::lost_peer;
    case ErrorKind::rejected:
      return FailureRole::rejected;
    case ErrorKind::checkpoint:
    case ErrorKind::exception:
      return FailureRole::own_cause;
  }
  return FailureRole::own_cause;
}

class Search {
 public:
  Search(const RunOutcome& outcome, const std::vector<RankView>& ranks,
         const std::vector<RankView>& then)
      : outcome_(outcome), ranks_(ranks), then_(then) {}

  std::vector<FailureCandidate> run() {
    for (const ProcessEnd& end : outcome_.ends) add(guilt_of(end), end);
    add_threads();
    note_waiters();
    count_accusations();
    for (const ProcessEnd& end : outcome_.ends) blame_whom_others_waited_for(end);
    blame_who_called_something_else();
    std::erase_if(found_, [](const FailureCandidate& s) { return s.role == FailureRole::none; });
    std::stable_sort(
        found_.begin(), found_.end(),
        [&](const FailureCandidate& a, const FailureCandidate& b) { return key(a) < key(b); });
    return found_;
  }

 private:
  void add(FailureRole role, const ProcessEnd& end) {
    found_.push_back({role, end.rank, end.order, &end});
  }

  void add_threads() {  // threads of one host have no ends of their own
    for (const RankView& view : ranks_) {
      const bool has_end = std::any_of(
          found_.begin(), found_.end(),
          [&](const FailureCandidate& candidate) { return candidate.rank == view.rank; });
      const ErrorKind kind = view.evidence.error.kind;
      if (!has_end && kind != ErrorKind::none)
        found_.push_back({role_of_error(kind), view.rank, view.rank, nullptr});
    }
  }

  // On a busy machine a deadline may pass while a rank is about to end, and to say why.
  static bool refused(const ProcessEnd& end, const RankView* view) {
    return end.exit_code == kExitCommError && view != nullptr &&
           view->evidence.error.kind == ErrorKind::rejected;
  }

  FailureRole guilt_of(const ProcessEnd& end) const {
    const RankView* view = view_of(ranks_, end.rank);
    if (end.past_deadline) return refused(end, view) ? FailureRole::rejected : FailureRole::hung;
    if (end.by_launcher) return FailureRole::none;
    if (end.signal != 0) return FailureRole::own_cause;
    if (end.exit_code == kExitDone) {
      // All well, as it says; but not all that it had to do is done.
      const bool too_early = view != nullptr && !view->finished;
      return too_early ? FailureRole::own_cause : FailureRole::none;
    }
    if (end.exit_code != kExitCommError) return FailureRole::own_cause;
    return role_of_error(view != nullptr ? view->evidence.error.kind : ErrorKind::none);
  }

  void note_waiters() {
    for (const FailureCandidate& candidate : found_) {
      others_failed_ = others_failed_ || candidate.role == FailureRole::waited ||
                       candidate.role == FailureRole::lost_peer ||
                       candidate.role == FailureRole::rejected ||
                       candidate.role == FailureRole::hung;
      const RankView* whole = view_of(ranks_, candidate.rank);
      if (candidate.role == FailureRole::waited && whole != nullptr && !whole->arrivals.empty())
        waited_in_.push_back(whole->arrivals.back());
      const RankView* view = view_of(then_, candidate.rank);
      const bool known = view != nullptr && (view->last_arrival || view->dropped == 0);
      if (candidate.role != FailureRole::waited || !known) continue;
      const int64_t arrived = last_arrival(view);
      least_waited_ = waiters_++ == 0 ? arrived : std::min(least_waited_, arrived);
    }
  }

  void blame_whom_others_waited_for(const ProcessEnd& end) {
    const RankView* whole = view_of(ranks_, end.rank);
    const RankView* view = view_of(then_, end.rank);
    if (whole == nullptr || view == nullptr) return;
    FailureCandidate& candidate = *std::find_if(
        found_.begin(), found_.end(), [&](const FailureCandidate& s) { return s.end == &end; });
    const bool in_charge = candidate.role == FailureRole::none ||
                           candidate.role == FailureRole::lost_peer ||
                           candidate.role == FailureRole::hung;
    if (in_charge && left_early(end, *whole)) candidate.role = FailureRole::left_early;
    if (waiters_ == 0) return;
    // One that the launcher ended after others had given up: it is behind all of them, or in the
    // same collective without having noticed, as they did, that its time was over.
    const bool asks = end.state && !end.state->store_key.empty();
    const bool behind = last_arrival(view) < least_waited_;
    const bool not_ahead = last_arrival(view) <= least_waited_;
    const bool late = behind || (not_ahead && had_its_time(end, *view));
    if (candidate.role == FailureRole::none && end.by_launcher && !asks && late)
      candidate.role = FailureRole::hung;
    // One that came too late, and found that the others had given up.
    const bool gave_up =
        candidate.role == FailureRole::lost_peer || candidate.role == FailureRole::waited;
    if (candidate.role == FailureRole::lost_peer &&
        (behind || (not_ahead && moved_on(*whole, *view))))
      candidate.role = FailureRole::hung;
    if (gave_up && came_too_late(*whole)) candidate.role = FailureRole::hung;
    if (gave_up && in_rendezvous(*view) && missed_.contains(candidate.rank))
      candidate.role = FailureRole::hung;
  }

  // Of two sizes whoever had room for the smaller one refuses: that tells not who is wrong.
  void blame_who_called_something_else() {
    const auto refused = [](const FailureCandidate& candidate) {
      return candidate.role == FailureRole::rejected;
    };
    if (std::none_of(found_.begin(), found_.end(), refused)) return;
    const std::map<int64_t, OtherCall> others = other_calls(ranks_);
    if (others.empty()) return;
    for (FailureCandidate& candidate : found_) {
      const auto other = others.find(candidate.rank);
      if (other == others.end()) {
        if (refused(candidate)) candidate.role = FailureRole::lost_peer;
      } else if (candidate.role > FailureRole::left_early) {
        if (!refused(candidate)) candidate.other_call = other->second;
        candidate.role = FailureRole::rejected;
      }
    }
  }

  // Into what another had waited in until its time was over, but only after that: on a busy machine
  // the other may take a while to say so.
  bool came_too_late(const RankView& whole) const {
    return std::any_of(waited_in_.begin(), waited_in_.end(), [&](const Event& waited) {
      return std::any_of(whole.arrivals.begin(), whole.arrivals.end(), [&](const Event& arrival) {
        return given_ns(waited) > 0 && arrival.sequence == waited.sequence &&
               arrival.time_ns - waited.time_ns >= given_ns(waited);
      });
    });
  }

  // The last that it entered, if that has not ended on it.
  static const Event* inside(const RankView& view) {
    if (view.primary_done || view.arrivals.empty()) return nullptr;
    const Event& last = view.arrivals.back();
    return view.last_end && last.sequence <= *view.last_end ? nullptr : &last;
  }

  // Of one that stands in a collective: it was stopped, or its own time there was over when it was
  // ended. One that came later than those who gave up has not had the time to give up itself, and
  // one that is at work has only not noticed yet.
  bool had_its_time(const ProcessEnd& end, const RankView& view) const {
    const Event* arrival = inside(view);
    if (arrival == nullptr || outcome_.failed_ns == 0 || (end.state && is_stopped(*end.state)))
      return true;
    return end.time_ns - arrival->time_ns >= given_ns(*arrival) && was_silent(view);
  }

  bool moved_on(const RankView& whole, const RankView& view) const {
    return outcome_.failed_ns > 0 && whole.last_event &&
           whole.last_event->time_ns > outcome_.failed_ns && was_silent(view);
  }

  // For a good part of the time that the others waited: it was not at work beside the collective.
  bool was_silent(const RankView& view) const {
    const Event* arrival = inside(view);
    return arrival == nullptr || !view.last_event ||
           2 * (outcome_.failed_ns - view.last_event->time_ns) >= given_ns(*arrival);
  }

  int64_t given_ns(const Event& arrival) const {
    return time_out_ms(outcome_.plan.scenario.timeouts, arrival) * 1'000'000;
  }

  static bool in_rendezvous(const RankView& view) {
    return !view.last_phase || view.last_phase->phase == static_cast<uint16_t>(Phase::rendezvous);
  }

  // It made all of its steps, but fewer than those that others waited for it in, or fewer
  // collectives: one that left out some is ahead of the others.
  bool left_early(const ProcessEnd& end, const RankView& view) const {
    const bool ended_well = end.signal == 0 && end.exit_code == kExitDone;
    if (!(ended_well || end.by_launcher) || !others_failed_ || !view.primary_done) return false;
    const bool counted = waiters_ > 0 && (view.last_arrival || view.dropped == 0);
    return view.last_step_end < outcome_.plan.scenario.steps ||
           (counted && last_arrival(&view) < least_waited_);
  }

  void count_accusations() {
    for (const RankView& view : ranks_) {
      const RankError& error = view.evidence.error;
      if (error.peer < 0) continue;
      if (error.kind == ErrorKind::peer_lost && had_closed(error.peer, view)) continue;
      if (error.kind == ErrorKind::rejected || error.kind == ErrorKind::peer_lost ||
          error.kind == ErrorKind::timeout)
        ++accused_[error.peer];
      if (error.kind == ErrorKind::timeout) missed_.insert(error.peer);
    }
  }

  // The accused had lost a peer itself, and its connections were open no longer: the loss is no
  // sign of whose fault it was.
  bool had_closed(int64_t accused, const RankView& accuser) const {
    const RankView* view = view_of(ranks_, accused);
    if (view == nullptr || !view->error_ns || !accuser.error_ns) return false;
    return view->evidence.error.kind == ErrorKind::peer_lost &&
           *accuser.error_ns >= *view->error_ns + std::chrono::nanoseconds(kKeptAfterALoss).count();
  }

  // Since when it hangs, or when it lost its peer; of other role it does not count.
  static int64_t moment_ns(FailureRole role, const RankView* view) {
    if (view == nullptr) return 0;
    if (role == FailureRole::hung && view->last_event) return view->last_event->time_ns;
    return role == FailureRole::lost_peer ? view->error_ns.value_or(0) : 0;
  }

  using Key = std::tuple<FailureRole, bool, bool, Progress, int64_t, int64_t, int64_t, int64_t>;
  Key key(const FailureCandidate& candidate) const {
    const RankView* view = view_of(then_, candidate.rank);
    const bool hung = candidate.role == FailureRole::hung;
    const bool by_progress =
        hung || candidate.role == FailureRole::waited || candidate.role == FailureRole::left_early;
    const bool by_votes = by_progress || candidate.role == FailureRole::rejected ||
                          candidate.role == FailureRole::lost_peer;
    const ProcessState* state =
        hung && candidate.end != nullptr && candidate.end->state ? &*candidate.end->state : nullptr;
    const bool stopped = state != nullptr && is_stopped(*state);
    const bool in_store = state != nullptr && !state->store_key.empty();
    const auto votes = accused_.find(candidate.rank);
    const bool accused = by_votes && votes != accused_.end();
    return {candidate.role,
            !stopped,
            in_store,
            by_progress ? progress_of(view) : Progress(),
            accused ? -votes->second : 0,
            moment_ns(candidate.role, view),
            candidate.order,
            candidate.rank};
  }

  const RunOutcome& outcome_;
  const std::vector<RankView>&ranks_, &then_;
  std::vector<FailureCandidate> found_;
  std::map<int64_t, int64_t> accused_;  // rank -> by how many
  std::set<int64_t> missed_;            // by those who timed out, and say whom they waited for
  bool others_failed_ = false;
  int64_t waiters_ = 0, least_waited_ = 0;
  std::vector<Event> waited_in_;  // the arrivals of those who timed out at what they timed out in
};

}  // namespace

const RankView* view_of(const std::vector<RankView>& ranks, int64_t rank) {
  const bool known = rank >= 0 && rank < static_cast<int64_t>(ranks.size());
  return known ? &ranks[static_cast<size_t>(rank)] : nullptr;
}

int64_t last_arrival(const RankView* view) {
  return view != nullptr && view->last_arrival ? int64_t{*view->last_arrival} : 0;
}

std::vector<FailureCandidate> failure_candidates(const RunOutcome& outcome,
                                                 const std::vector<RankView>& ranks,
                                                 const std::vector<RankView>& then) {
  return Search(outcome, ranks, then).run();
}

}  // namespace lockstep
