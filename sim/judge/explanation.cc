#include "sim/judge/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/judge/failure_candidates.h"
#include "sim/judge/last_position.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

int64_t ms_between(int64_t from_ns, int64_t to_ns) {
  return std::max<int64_t>(0, std::llround(static_cast<double>(to_ns - from_ns) * 1e-6));
}

bool contains(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
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

}  // namespace lockstep
