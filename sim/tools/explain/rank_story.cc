#include "sim/tools/explain/rank_story.h"

#include <algorithm>
#include <array>
#include <csignal>

namespace lockstep {
namespace {

bool is_own_signal(int64_t signal) {
  constexpr std::array kOwnSignals = {4, 7, 8, 9, 11};
  return std::find(kOwnSignals.begin(), kOwnSignals.end(), signal) != kOwnSignals.end();
}

}  // namespace

void RankStory::take(const LogEvent& event) {
  switch (event.kind) {
    case LogEventKind::timed_out:
    case LogEventKind::lost_peer:
    case LogEventKind::mismatch:
    case LogEventKind::absent:
      if (victim == nullptr && !event.of_others) victim = &event;
      break;
    case LogEventKind::exception:
      // After what it lost, or in another file than that, it is a consequence.
      if (victim == nullptr && exception == nullptr) exception = &event;
      if (victim != nullptr && victim->kind == LogEventKind::lost_peer && !victim->certain &&
          event.certain && event.own)
        later = &event;
      break;
    case LogEventKind::ended:
      // A table tells more than the line before it: when.
      if (end == nullptr || (end->signal == 0 && event.signal != 0) ||
          (end->time.empty() && !event.time.empty() && end->signal == event.signal))
        end = &event;
      break;
    case LogEventKind::stopped:
      stopped = true;
      // Or with SIGKILL, where it did not heed that.
      terminated |= (event.signal == SIGTERM || event.signal == SIGKILL) && !event.local;
      if (event.first && event.signal == SIGTERM && !event.local && stop == nullptr) stop = &event;
      break;
    case LogEventKind::stuck:
      if (victim == nullptr && stuck == nullptr) stuck = &event;
      break;
    case LogEventKind::progress:
      progress = true;
      break;
    case LogEventKind::job_ended:
      stopped = true;
      break;
    case LogEventKind::node_fault:
    case LogEventKind::world:
      break;
  }
}

bool RankStory::is_silent() const {
  return victim == nullptr && exception == nullptr && end == nullptr && stuck == nullptr &&
         !stopped;
}

Death death_of(const RankStory& story) {
  const LogEvent* exception = story.exception;
  const bool first =
      exception != nullptr && (story.victim == nullptr || (story.victim->file == exception->file &&
                                                           exception->line < story.victim->line));
  // Who reports a lost peer after what nobody is said to have left uncaught, caught it.
  const bool ended = exception != nullptr &&
                     (exception->certain || (story.end != nullptr && story.victim == nullptr));
  if (first && exception->own && !exception->local && ended) return Death::own;
  if (first || story.later != nullptr) return Death::unclear;
  if (story.victim != nullptr || story.end == nullptr) return Death::none;
  const bool own = is_own_signal(story.end->signal) && !story.end->local && !story.end->forced;
  return own ? Death::own : Death::unclear;
}

}  // namespace lockstep
