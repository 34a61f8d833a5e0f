#include "sim/judge/failure.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <sstream>
#include <tuple>

#include "reducer/probe.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

// How good an explanation an end is: the smallest is the primary failure.
enum class Guilt { own_cause, past_deadline, left_early, laggard, waited, lost_peer, none };

struct Suspect {
  Guilt guilt = Guilt::none;
  int64_t progress = 0;         // among the hung: who came least far is whom the others waited for
  int64_t silent_since_ns = 0;  // among equals: who fell silent first
  int64_t order = 0;
  int64_t rank = -1;
  const ProcessEnd* end = nullptr;  // null: a thread, known by its evidence alone
  auto key() const { return std::tuple(guilt, progress, silent_since_ns, order, rank); }
};

const RankView* view_of(const std::vector<RankView>& ranks, int64_t rank) {
  const bool known = rank >= 0 && rank < static_cast<int64_t>(ranks.size());
  return known ? &ranks[static_cast<size_t>(rank)] : nullptr;
}

int64_t last_arrival(const RankView* view) {
  return view != nullptr && view->last_arrival ? int64_t{*view->last_arrival} : 0;
}

Guilt guilt_of_error(const std::string& error_kind) {
  if (error_kind == "timeout") return Guilt::waited;
  if (error_kind == "peer_lost" || error_kind == "closed") return Guilt::lost_peer;
  return Guilt::own_cause;  // rejected, exception
}

Guilt guilt_of(const ProcessEnd& end, const RankView* view) {
  if (end.past_deadline) return Guilt::past_deadline;
  if (end.by_launcher || (end.signal == 0 && end.exit_code == kExitDone)) return Guilt::none;
  if (end.signal == 0 && end.exit_code == kExitCommError) {
    const std::string kind = view != nullptr ? view->evidence.error_kind : "";
    return kind.empty() ? Guilt::lost_peer : guilt_of_error(kind);
  }
  return Guilt::own_cause;
}

// A rank that ended well, but before the last step, so that others waited for it in vain.
bool left_early(const ProcessEnd& end, const RankView* view, int64_t steps,
                const std::vector<Suspect>& suspects) {
  const bool ended_well = !end.by_launcher && end.signal == 0 && end.exit_code == kExitDone;
  const bool others_waited =
      std::any_of(suspects.begin(), suspects.end(), [](const Suspect& other) {
        return other.guilt == Guilt::waited || other.guilt == Guilt::lost_peer;
      });
  return view != nullptr && ended_well && view->primary_done && view->last_step_end < steps &&
         others_waited;
}

// A rank that the launcher ended after others had given up: it is behind all of them, or in the
// same collective without having noticed, as they did, that its time was over.
bool lags_behind(const RankView* view, const std::vector<Suspect>& suspects) {
  bool others_waited = false;
  for (const Suspect& other : suspects) {
    if (other.guilt != Guilt::waited) continue;
    others_waited = true;
    if (last_arrival(view) > other.progress) return false;
  }
  return others_waited;
}

std::vector<Suspect> suspects_of(const RunOutcome& outcome, const std::vector<RankView>& ranks) {
  std::vector<Suspect> found;
  std::vector<bool> has_end(ranks.size(), false);
  for (const ProcessEnd& end : outcome.ends) {
    const RankView* view = view_of(ranks, end.rank);
    if (view != nullptr) has_end[static_cast<size_t>(end.rank)] = true;
    const Guilt guilt = guilt_of(end, view);
    const bool by_progress = guilt == Guilt::past_deadline || guilt == Guilt::waited;
    if (guilt != Guilt::none)
      found.push_back({guilt, by_progress ? last_arrival(view) : 0, 0, end.order, end.rank, &end});
  }
  for (const RankView& view : ranks)  // threads of one host have no ends of their own
    if (!has_end[static_cast<size_t>(view.rank)] && !view.evidence.error_kind.empty())
      found.push_back(
          {guilt_of_error(view.evidence.error_kind), 0, 0, view.rank, view.rank, nullptr});
  for (const ProcessEnd& end : outcome.ends) {
    const RankView* view = view_of(ranks, end.rank);
    if (left_early(end, view, outcome.plan.scenario.steps, found))
      found.push_back({Guilt::left_early, view->last_step_end, 0, end.order, end.rank, &end});
    if (view != nullptr && end.by_launcher && !end.past_deadline && lags_behind(view, found))
      found.push_back({Guilt::laggard, last_arrival(view),
                       view->last_event ? view->last_event->time_ns : 0, end.order, end.rank,
                       &end});
  }
  std::sort(found.begin(), found.end(),
            [](const Suspect& a, const Suspect& b) { return a.key() < b.key(); });
  return found;
}

std::string kind_of(const Suspect& suspect, const RankView* view) {
  if (suspect.guilt == Guilt::past_deadline || suspect.guilt == Guilt::laggard) return "hang";
  if (suspect.guilt == Guilt::waited) return "timeout";
  if (suspect.guilt == Guilt::left_early) return "exit";
  if (view != nullptr && view->evidence.error_kind == "rejected") return "rejected";
  if (suspect.end == nullptr || suspect.guilt == Guilt::lost_peer) return "exception";
  if (suspect.end->signal != 0) return "crash";
  return suspect.end->exit_code == kExitException ? "exception" : "exit";
}

// Records may be damaged: a number that is no operation must not end the judge.
const char* operation_word(uint8_t code) {
  return is_operation(code) ? to_word(static_cast<Operation>(code)) : "collective";
}

std::string size_text(int64_t bytes) {
  if (bytes < 100'000) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

std::string event_text(const RankView& view) {
  if (!view.last_event) return "";
  const Event& event = *view.last_event;
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::phase_begin:
      return fmt::format("begin of {}", to_word(static_cast<Phase>(event.phase)));
    case EventKind::arrival:
      return "arrival of " + collective_text(event);
    case EventKind::end:
      for (auto it = view.arrivals.rbegin(); it != view.arrivals.rend(); ++it)
        if (it->sequence == event.sequence) return "end of " + collective_text(*it);
      return fmt::format("end of collective {}", event.sequence);
    case EventKind::parameter_ready:
      return fmt::format("gradient of parameter {} ready", event.subject);
    case EventKind::bucket_ready:
      return fmt::format("bucket {} ready", event.subject);
    case EventKind::step_end:
      return fmt::format("end of step {}", event.step);
    default:
      return fmt::format("receipt of fault {}", event.subject);
  }
}

std::string where(const RankView* view) {
  if (view == nullptr || !view->last_phase) return "before its first record";
  const Event& event = view->last_event ? *view->last_event : *view->last_phase;
  const char* phase = to_word(static_cast<Phase>(view->last_phase->phase));
  if (event.step <= 0) return fmt::format("in {}", phase);
  return fmt::format("in {} of step {}", phase, event.step);
}

std::string signal_text(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return fmt::format("signal {}", signal);
  return fmt::format("SIG{} ({})", abbreviation, signal);
}

std::string name_of(const Suspect& suspect) {
  if (suspect.rank >= 0) return fmt::format("rank {}", suspect.rank);
  return suspect.end != nullptr ? suspect.end->who : "a process";
}

std::string how(const Suspect& suspect, const Failure& failure, const RankView* view) {
  const std::string error = view != nullptr ? view->evidence.error : "";
  if (suspect.guilt == Guilt::left_early)
    return fmt::format("ended after step {}, while others waited for it,", view->last_step_end);
  if (failure.kind == "crash")
    return (*failure.signal == SIGKILL || *failure.signal == SIGTERM ? "was killed by "
                                                                     : "crashed with ") +
           signal_text(*failure.signal);
  if (failure.kind == "exit") return fmt::format("exited with code {}", *failure.exit_code);
  if (failure.kind == "hang") return "made no progress and was ended";
  if (failure.kind == "timeout") return "waited in vain for another rank";
  if (failure.kind == "rejected") return "rejected what it was given";
  if (suspect.guilt == Guilt::lost_peer) return "lost a peer";
  return "ended by an exception";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

void describe(const RunOutcome& outcome, const Suspect& suspect, const RankView* view,
              Failure* failure) {
  if (view != nullptr && view->last_phase) {
    failure->phase = to_word(static_cast<Phase>(view->last_phase->phase));
    failure->step = std::max(view->last_phase->step, view->last_event->step);
    failure->last_event = event_text(*view);
  }
  failure->message =
      fmt::format("{} {} {}", name_of(suspect), how(suspect, *failure, view), where(view));
  if (view != nullptr && !view->evidence.error.empty())
    failure->message += ": " + view->evidence.error;
  else if (failure->kind == "hang" && !failure->last_event.empty())
    failure->message += "; its last event: " + failure->last_event;
  if (suspect.rank >= 0 && suspect.rank < static_cast<int64_t>(outcome.log_tails.size()))
    failure->log_tail = lines_of(outcome.log_tails[static_cast<size_t>(suspect.rank)]);
}

// Was it the file that could not be saved or loaded?
bool no_checkpoint(const Evidence& evidence) {
  return evidence.error_kind == "exception" && evidence.phase == to_word(Phase::checkpoint) &&
         evidence.error.starts_with("checkpoint");
}

Failure failure_of(const RunOutcome& outcome, const std::vector<Suspect>& suspects,
                   const std::vector<RankView>& ranks) {
  const Suspect& primary = suspects.front();
  const RankView* view = view_of(ranks, primary.rank);
  Failure failure;
  if (primary.rank >= 0) failure.rank = primary.rank;
  failure.kind = kind_of(primary, view);
  if (primary.end != nullptr && primary.end->signal != 0) failure.signal = primary.end->signal;
  if (primary.end != nullptr && primary.end->exit_code >= 0)
    failure.exit_code = primary.end->exit_code;
  describe(outcome, primary, view, &failure);
  if (failure.kind == "exception" && view != nullptr && no_checkpoint(view->evidence))
    failure.cause = "checkpoint";
  if (primary.rank < 0 && !outcome.golden_problem.empty()) failure.message = outcome.golden_problem;
  for (const Suspect& other : suspects)
    if (other.rank >= 0 && other.rank != primary.rank) failure.secondary.push_back(other.rank);
  std::sort(failure.secondary.begin(), failure.secondary.end());
  failure.secondary.erase(std::unique(failure.secondary.begin(), failure.secondary.end()),
                          failure.secondary.end());
  return failure;
}

}  // namespace

std::string collective_text(const Event& arrival) {
  const PackedCollective packed = unpack_collective(arrival.value);
  const std::string bucket =
      arrival.subject >= 0 ? fmt::format("bucket {}, ", arrival.subject) : "";
  return fmt::format("{} {} ({}{})", operation_word(packed.operation), arrival.sequence, bucket,
                     size_text(packed.bytes));
}

std::optional<Failure> find_failure(const RunOutcome& outcome, const std::vector<RankView>& ranks) {
  if (outcome.interrupted) return std::nullopt;
  const auto suspects = suspects_of(outcome, ranks);
  if (!suspects.empty()) return failure_of(outcome, suspects, ranks);
  if (outcome.golden_problem.empty()) return std::nullopt;
  Failure failure;
  failure.kind = "exit";
  failure.message = outcome.golden_problem;
  return failure;
}

}  // namespace lockstep
