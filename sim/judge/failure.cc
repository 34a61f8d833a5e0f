#include "sim/judge/failure.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "sim/judge/blame.h"
#include "sim/judge/rank_view.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

int64_t ms_between(int64_t from_ns, int64_t to_ns) {
  return std::max<int64_t>(0, std::llround(static_cast<double>(to_ns - from_ns) * 1e-6));
}

class Explainer {
 public:
  Explainer(const RunOutcome& outcome, const std::vector<RankView>& ranks,
            const std::vector<RankView>& then, std::optional<int64_t> primary)
      : outcome_(outcome), ranks_(ranks), then_(then), primary_(primary) {}

  Explanation run() {
    find_collective();
    for (const RankView& view : then_)
      if (contains(found_.missing, view.rank) || primary_ == view.rank)
        found_.doing.push_back(doing(view));
    note_waiting();
    return found_;
  }

 private:
  // Sequence numbers count the collectives of a rank: the first that not all entered follows the
  // last of the rank that came least far. A file that has lost its oldest events may not even tell
  // the last one: then nothing is said.
  void find_collective() {
    int64_t least = INT64_MAX, most = 0, ended = 0;
    for (const RankView& view : then_) {
      if (view.records_lost) continue;
      if (!view.last_arrival && view.dropped > 0) return;
      least = std::min(least, last_arrival(&view));
      most = std::max(most, last_arrival(&view));
      ended = std::max<int64_t>(ended, view.last_end.value_or(0));
    }
    if (const int64_t inside = primary_inside(ended, most == least); inside > 0) {
      found_.inside = true;
      return set_collective(inside, false);
    }
    if (most > least) return set_collective(least + 1, true);
    const int64_t of_waiters = last_ended(true);
    const int64_t first_open = (of_waiters != INT64_MAX ? of_waiters : last_ended(false)) + 1;
    if (first_open <= most) set_collective(first_open, false);
  }

  // The collective that the primary rank entered and was last seen in, if it ended on nobody.
  int64_t primary_inside(int64_t ended, bool all_entered) const {
    const RankView* view = primary_ ? view_of(then_, *primary_) : nullptr;
    if (view == nullptr || !view->last_arrival || view->evidence.error.kind != ErrorKind::none)
      return 0;
    const bool last_of_all = view->last_event->kind == static_cast<uint16_t>(EventKind::arrival);
    return (last_of_all || all_entered) && ended < last_arrival(view) ? last_arrival(view) : 0;
  }

  // By all ranks that timed out; where there is none, by all ranks.
  int64_t last_ended(bool of_those_who_timed_out) const {
    int64_t ended = INT64_MAX;
    for (const RankView& view : then_)
      if (!view.records_lost &&
          (!of_those_who_timed_out || view.evidence.error.kind == ErrorKind::timeout))
        ended = std::min<int64_t>(ended, view.last_end ? *view.last_end : 0);
    return ended;
  }

  void set_collective(int64_t sequence, bool not_all_entered) {
    const Event* arrival = arrival_of(sequence);
    if (arrival == nullptr) return;
    found_.collective = collective_of(*arrival);
    for (const RankView& view : then_) {
      if (view.records_lost) continue;
      const bool entered = !not_all_entered || last_arrival(&view) >= sequence;
      (entered ? found_.entered : found_.missing).push_back(view.rank);
    }
  }

  const Event* arrival_of(int64_t sequence) const {
    for (const RankRecords& records : outcome_.ranks)
      if (const Event* event = arrival_in(records, sequence)) return event;
    return nullptr;
  }

  static const Event* arrival_in(const RankRecords& records, int64_t sequence) {
    for (auto it = records.events.rbegin(); it != records.events.rend(); ++it)
      if (static_cast<EventKind>(it->kind) == EventKind::arrival && it->sequence == sequence)
        return &*it;
    return nullptr;
  }

  Explanation::Doing doing(const RankView& view) const {
    Explanation::Doing doing;
    doing.rank = view.rank;
    if (view.last_phase && view.last_event) {
      doing.phase = to_word(static_cast<Phase>(view.last_phase->phase));
      doing.step = std::max(view.last_phase->step, view.last_event->step);
      doing.last_event = event_text(view);
      if (view.last_parameter) doing.layer = layer_of(outcome_.plan.scenario, *view.last_parameter);
    }
    const ProcessEnd* end = end_of(outcome_, view.rank);
    const bool dead = end != nullptr && !end->by_launcher && end->time_ns > 0 &&
                      end->time_ns <= outcome_.failed_ns;
    if (view.last_event && outcome_.failed_ns > 0)
      doing.for_ms = ms_between(view.last_event->time_ns, dead ? end->time_ns : outcome_.failed_ns);
    doing.state = state_of(view, end);
    return doing;
  }

  // At that moment; else how it ended.
  static std::string state_of(const RankView& view, const ProcessEnd* end) {
    if (end == nullptr)
      return view.evidence.error.kind == ErrorKind::none ? "" : "ended by an exception";
    if (end->lost) return "gone, its records are lost";
    if (end->state) return to_words(*end->state);
    if (end->by_launcher) return "";
    if (end->signal != 0) return "killed by " + signal_text(end->signal);
    if (end->exit_code == kExitException) return "ended by an exception";
    return fmt::format("exited with code {}", end->exit_code);
  }

  void note_waiting() {
    for (const RankView& view : ranks_) {
      if (view.evidence.error.kind != ErrorKind::timeout || view.rank == primary_) continue;
      found_.waited.push_back(view.rank);
      const auto since_ns = waits_since(view);
      if (!since_ns || !view.error_ns) continue;
      found_.waited_ms =
          std::max(found_.waited_ms.value_or(0), ms_between(*since_ns, *view.error_ns));
    }
  }

  // When it entered what it timed out in: the collective, or, before there is one, its phase.
  std::optional<int64_t> waits_since(const RankView& view) const {
    const auto index = static_cast<size_t>(view.rank);
    if (found_.collective && index < outcome_.ranks.size())
      if (const Event* event = arrival_in(outcome_.ranks[index], found_.collective->sequence))
        return event->time_ns;
    if (view.last_phase) return view.last_phase->time_ns;
    return std::nullopt;
  }

  const RunOutcome& outcome_;
  const std::vector<RankView>&ranks_, &then_;
  const std::optional<int64_t> primary_;
  Explanation found_;
};

std::string place_of(const Explanation::Doing& doing) {
  if (doing.phase.empty()) return "before its first record";
  std::string text = "in " + doing.phase;
  if (doing.step > 0) text += fmt::format(" of step {}", doing.step);
  if (!doing.layer.empty()) text += fmt::format(" (after {})", doing.layer);
  return text;
}

}  // namespace

bool contains(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

Explanation explain(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                    const std::vector<RankView>& then, std::optional<int64_t> primary) {
  return Explainer(outcome, ranks, then, primary).run();
}

const Explanation::Doing* doing_of(const Explanation& explanation, int64_t rank) {
  for (const Explanation::Doing& doing : explanation.doing)
    if (doing.rank == rank) return &doing;
  return nullptr;
}

std::string hang_text(const Explanation& explanation, int64_t rank) {
  const Explanation::Doing* doing = doing_of(explanation, rank);
  if (doing == nullptr) return fmt::format("rank {} made no progress and was ended", rank);
  const bool missing = contains(explanation.missing, rank);
  std::string text = fmt::format("rank {} made no progress {}", rank, place_of(*doing));
  if (missing || explanation.inside)
    text = fmt::format("rank {} {} {}: {}", rank, missing ? "never entered" : "did not come out of",
                       to_words(*explanation.collective), place_of(*doing));
  if (doing->for_ms) text += " for " + duration_text(*doing->for_ms);
  if (!doing->state.empty()) text += ", " + doing->state;
  if (!missing && !explanation.inside && !doing->last_event.empty())
    text += "; its last event: " + doing->last_event;
  return text;
}

std::string waited_text(const Explanation& explanation) {
  if (explanation.waited.empty()) return "";
  std::string text = fmt::format("; {} timed out", ranks_text(explanation.waited));
  if (explanation.waited_ms) text += " after " + duration_text(*explanation.waited_ms);
  return text + " because of it";
}

std::string missing_text(const Explanation& explanation, int64_t rank) {
  const bool missing = contains(explanation.missing, rank);
  if (!missing && !explanation.inside) return "";
  return fmt::format("; it {} {}", missing ? "never entered" : "did not come out of",
                     to_words(*explanation.collective));
}

namespace {

constexpr size_t kFramesMax = 20;

std::string kind_of(const FailureCandidate& candidate, const RankView* view) {
  if (candidate.role == FailureRole::hung) return "hang";
  if (candidate.role == FailureRole::waited) return "timeout";
  if (candidate.role == FailureRole::left_early) return "exit";
  if (candidate.role == FailureRole::rejected) return "rejected";
  if (candidate.end == nullptr || candidate.role == FailureRole::lost_peer) return "exception";
  if (candidate.end->lost) return "lost";
  if (candidate.end->signal != 0) return "crash";
  if (candidate.end->exit_code != kExitException) return "exit";
  return view != nullptr && view->evidence.error.kind == ErrorKind::rejected ? "rejected"
                                                                             : "exception";
}

std::string name_of(const FailureCandidate& candidate) {
  if (candidate.rank >= 0) return fmt::format("rank {}", candidate.rank);
  return candidate.end != nullptr ? candidate.end->who : "a process";
}

std::string how(const FailureCandidate& candidate, const Failure& failure, const RankView* view) {
  if (candidate.role == FailureRole::left_early)
    return fmt::format("ended after step {}, while others waited for it,", view->last_step_end);
  if (failure.kind == "crash")
    return (*failure.signal == SIGKILL || *failure.signal == SIGTERM ? "was killed by "
                                                                     : "crashed with ") +
           signal_text(*failure.signal);
  if (failure.kind == "exit") return fmt::format("exited with code {}", *failure.exit_code);
  if (failure.kind == "hang") return "made no progress and was ended";
  if (failure.kind == "timeout") return "waited in vain for another rank";
  if (failure.kind == "rejected") return "rejected what it was given";
  if (candidate.role == FailureRole::lost_peer) return "lost a peer";
  return "ended by an exception";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

// Of a rank; what is not one has no records.
std::string sentence(const FailureCandidate& candidate, const Failure& failure,
                     const RankView* view) {
  const Explanation& explanation = failure.explanation;
  if (failure.kind == "hang" && candidate.rank >= 0)
    return hang_text(explanation, candidate.rank) + waited_text(explanation);
  if (failure.kind == "lost")
    return fmt::format("{}: its process is gone, its records are lost", name_of(candidate)) +
           waited_text(explanation);
  if (candidate.other_call)
    return fmt::format("{} called {} where most ranks called {}, and was refused",
                       name_of(candidate), collective_text(candidate.other_call->own),
                       collective_text(candidate.other_call->usual));
  std::string text =
      fmt::format("{} {} {}", name_of(candidate), how(candidate, failure, view), where(view));
  if (view != nullptr && !view->evidence.error.text.empty())
    text += ": " + view->evidence.error.text;
  const bool kept_others = candidate.role <= FailureRole::left_early;
  if (kept_others) text += missing_text(explanation, candidate.rank) + waited_text(explanation);
  return text;
}

void describe_failure(const RunOutcome& outcome, const FailureCandidate& candidate,
                      const RankView* view, Failure* failure) {
  if (view != nullptr && view->last_phase) {
    failure->phase = to_word(static_cast<Phase>(view->last_phase->phase));
    failure->step = std::max(view->last_phase->step, view->last_event->step);
    failure->last_event = event_text(*view);
  }
  failure->message = sentence(candidate, *failure, view);
  if (candidate.rank >= 0 && candidate.rank < static_cast<int64_t>(outcome.log_tails.size()))
    failure->log_tail = lines_of(outcome.log_tails[static_cast<size_t>(candidate.rank)]);
  if (candidate.end == nullptr || !candidate.end->state) return;
  failure->stack = candidate.end->state->stack;
  if (failure->stack.size() > kFramesMax) failure->stack.resize(kFramesMax);
}

// Was it the file that could not be saved or loaded, or what was loaded?
bool no_checkpoint(const Evidence& evidence) {
  const auto& reasons = evidence.check_reasons;
  return evidence.error.kind == ErrorKind::checkpoint ||
         (evidence.error.kind == ErrorKind::exception &&
          std::any_of(reasons.begin(), reasons.end(),
                      [](const CheckReason& reason) { return reason.check == Check::checkpoint; }));
}

double ms_until(int64_t from_ns, int64_t to_ns) {  // microseconds are enough
  return std::max(0.0, std::round(static_cast<double>(to_ns - from_ns) * 1e-3) / 1e3);
}

// The one place that looks at receipts: what is measured here is the program, against the faults it
// was given. No attribution rests on it.
std::optional<int64_t> first_receipt_ns(const RunOutcome& outcome) {
  std::optional<int64_t> first;
  for (const RankRecords& records : outcome.ranks)
    for (const Event& event : records.events)
      if (static_cast<EventKind>(event.kind) == EventKind::receipt && event.subject >= kFirstFault)
        first = std::min(first.value_or(event.time_ns), event.time_ns);
  return first;
}

void measure(const RunOutcome& outcome, const FailureCandidate& primary, const RankView* view,
             Failure* failure) {
  if (outcome.failed_ns == 0) return;
  const int64_t since_ns = first_receipt_ns(outcome).value_or(outcome.began_ns);
  failure->after_ms = ms_until(since_ns, outcome.failed_ns);
  failure->core_wait_ms = ms_until(0, core_wait_of_all_since(outcome, since_ns));
  std::optional<int64_t> sign_of_life;
  if (primary.role == FailureRole::hung) {
    if (view != nullptr && view->last_event) sign_of_life = view->last_event->time_ns;
  } else if (primary.end != nullptr) {
    sign_of_life = primary.end->time_ns;
  }
  if (sign_of_life) failure->detected_ms = ms_until(*sign_of_life, outcome.failed_ns);
}

// For how long of its silence the primary rank was ready and had no core; nothing where that is not
// most of it, or where it is no lateness that brought the run down.
std::optional<int64_t> starved_ns(const RunOutcome& outcome, const FailureCandidate& primary,
                                  const RankView* view) {
  const bool late = primary.role == FailureRole::hung || primary.role == FailureRole::waited;
  if (!late || primary.rank < 0 || outcome.failed_ns == 0) return std::nullopt;
  const bool known = view != nullptr && view->last_event;
  const int64_t since_ns = known ? view->last_event->time_ns : outcome.began_ns;
  int64_t waited_ns = core_wait_since(outcome, primary.rank, since_ns);
  // Before its first record it waits for who starts it, too.
  if (!known) waited_ns = std::max(waited_ns, outcome.core_wait_ns);
  return waited_ns * 2 > outcome.failed_ns - since_ns ? std::optional(waited_ns) : std::nullopt;
}

// Nobody is blamed for what the machine did.
void blame_the_machine(int64_t waited_ns, const FailureCandidate& primary, const RankView* view,
                       Failure* failure) {
  const std::string waited = duration_text(waited_ns / 1'000'000);
  failure->kind = "starved";
  failure->message = view != nullptr && view->last_event
                         ? fmt::format(
                               "busy machine: nobody is blamed, because {}, which the others "
                               "waited for, was ready to run without a core for {} {}",
                               name_of(primary), waited, where(view))
                         : fmt::format(
                               "busy machine: nobody is blamed, because nothing was heard from {} "
                               "while it, or its launcher, was ready to run without a core for {}",
                               name_of(primary), waited);
  failure->secondary.push_back(primary.rank);
  std::sort(failure->secondary.begin(), failure->secondary.end());
  failure->rank.reset();
}

// While ranks meet, whoever reaches a port of Gloo's may break a connection or take another's place
// (docs/launchers.md). Where nothing but lost connections is known, or that several waited for each
// other, and every process lived, no rank is shown to be the one.
bool broke_while_meeting(const std::vector<FailureCandidate>& candidates,
                         const std::vector<RankView>& ranks) {
  int64_t waited = 0;
  for (const FailureCandidate& candidate : candidates) {
    const RankView* view = view_of(ranks, candidate.rank);
    if (view == nullptr || !view->last_phase ||
        view->last_phase->phase != static_cast<uint16_t>(Phase::rendezvous))
      return false;
    if (candidate.role == FailureRole::waited)
      ++waited;
    else if (candidate.role != FailureRole::lost_peer)
      return false;
  }
  return waited != 1;  // one alone waits for whom only it knows of
}

// No rank has made a record, and all that ended by themselves, two at least, ended alike: a limit
// or a library stops whoever begins. Who ended first says nothing.
bool none_could_begin(const RunOutcome& outcome, const std::vector<RankView>& ranks) {
  const auto began = [](const RankView& view) { return view.last_event || view.last_phase; };
  if (std::any_of(ranks.begin(), ranks.end(), began)) return false;
  std::vector<const ProcessEnd*> own;
  for (const ProcessEnd& end : outcome.ends)
    if (end.rank >= 0 && !end.by_launcher && !end.past_deadline && !end.lost) own.push_back(&end);
  return own.size() >= 2 && std::all_of(own.begin(), own.end(), [&](const ProcessEnd* end) {
           return end->exit_code == own[0]->exit_code && end->signal == own[0]->signal;
         });
}

void blame_nobody(const char* why, const FailureCandidate& primary, Failure* failure) {
  failure->message = fmt::format("nobody is blamed: {}: {}", why, failure->message);
  failure->secondary.push_back(primary.rank);
  std::sort(failure->secondary.begin(), failure->secondary.end());
  failure->rank.reset();
}

std::vector<int64_t> others_of(const std::vector<FailureCandidate>& candidates,
                               std::optional<int64_t> primary) {
  std::vector<int64_t> ranks;
  for (const FailureCandidate& other : candidates)
    if (other.rank >= 0 && other.rank != primary) ranks.push_back(other.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// All entered what they timed out in: whoever gave up first is as innocent as the others. To blame
// is the one that came so late that too little time was left, or nobody.
Failure failure_of(const RunOutcome& outcome, const std::vector<FailureCandidate>& candidates,
                   const std::vector<RankView>& ranks, const std::vector<RankView>& then,
                   const JointWait& wait) {
  Failure failure;
  if (!wait.together()) failure.rank = wait.last;
  failure.kind = "timeout";
  failure.phase = to_word(static_cast<Phase>(wait.arrival.phase));
  failure.step = std::max(wait.arrival.step, 0);
  failure.last_event = "arrival of " + collective_text(wait.arrival);
  failure.explanation = explain(outcome, ranks, then, std::nullopt);
  failure.explanation.collective = collective_of(wait.arrival);
  failure.message = to_words(wait) + (failure.rank ? waited_text(failure.explanation) : "");
  failure.secondary = others_of(candidates, failure.rank);
  measure(outcome, {}, nullptr, &failure);
  return failure;
}

Failure failure_of(const RunOutcome& outcome, const std::vector<FailureCandidate>& candidates,
                   const std::vector<RankView>& ranks, const std::vector<RankView>& then) {
  const FailureCandidate& primary = candidates.front();
  if (primary.role == FailureRole::waited)
    if (const auto wait = joint_wait(outcome, then))
      return failure_of(outcome, candidates, ranks, then, *wait);
  const RankView* view = view_of(primary.role == FailureRole::hung ? then : ranks, primary.rank);
  Failure failure;
  if (primary.rank >= 0) failure.rank = primary.rank;
  failure.kind = kind_of(primary, view);
  if (primary.end != nullptr && primary.end->signal != 0) failure.signal = primary.end->signal;
  if (primary.end != nullptr && primary.end->exit_code >= 0)
    failure.exit_code = primary.end->exit_code;
  failure.explanation = explain(outcome, ranks, then, failure.rank);
  describe_failure(outcome, primary, view, &failure);
  if (failure.kind == "exception" && view != nullptr && no_checkpoint(view->evidence))
    failure.cause = "checkpoint";
  if (primary.rank < 0 && !outcome.golden_problem.empty()) failure.message = outcome.golden_problem;
  failure.secondary = others_of(candidates, failure.rank);
  measure(outcome, primary, view, &failure);
  if (const auto waited_ns = starved_ns(outcome, primary, view))
    blame_the_machine(*waited_ns, primary, view, &failure);
  else if (broke_while_meeting(candidates, ranks))
    blame_nobody(
        primary.role == FailureRole::waited
            ? "ranks waited for each other while they met, and every process lived, as where the "
              "machine is too busy for the time-out"
            : "connections broke while ranks met, and every process lived, as where a foreign "
              "connection reaches a port of Gloo's",
        primary, &failure);
  else if (none_could_begin(outcome, ranks))
    blame_nobody("no rank could begin, and all that ended on their own ended in the same way",
                 primary, &failure);
  return failure;
}

}  // namespace

std::optional<Failure> find_failure(const RunOutcome& outcome, const std::vector<RankView>& ranks) {
  if (outcome.interrupted) return std::nullopt;
  const std::vector<RankView> then =
      outcome.failed_ns > 0 ? views_at(outcome, ranks, outcome.failed_ns) : ranks;
  const auto candidates = failure_candidates(outcome, ranks, then);
  if (!candidates.empty()) return failure_of(outcome, candidates, ranks, then);
  if (outcome.golden_problem.empty()) return std::nullopt;
  Failure failure;
  failure.kind = "exit";
  failure.message = outcome.golden_problem;
  return failure;
}

}  // namespace lockstep
