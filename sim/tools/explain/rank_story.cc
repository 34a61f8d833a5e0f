#include "sim/tools/explain/rank_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <utility>

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

std::string place_of(const LogEvent& event) {
  return fmt::format("{}:{}", std::filesystem::path(event.file).filename().string(), event.line);
}

void tell_ends(const std::map<int64_t, RankStory>& stories, const RankSet& ended,
               const RankSet& stuck, std::vector<std::string>* evidence) {
  constexpr size_t kMostTold = 8;
  std::vector<std::pair<const LogEvent*, RankSet>> told;
  for (const int64_t rank : ended) {
    const RankStory& story = stories.at(rank);
    const LogEvent* event = story.exception != nullptr ? story.exception
                            : story.later != nullptr   ? story.later
                                                       : story.end;
    if (event == nullptr) continue;
    const auto same = std::find_if(told.begin(), told.end(), [&](const auto& other) {
      return other.first->file == event->file && other.first->line == event->line;
    });
    if (same != told.end())
      same->second.insert(rank);
    else if (told.size() < kMostTold)
      told.emplace_back(event, RankSet{rank});
  }
  for (const auto& [event, ranks] : told)
    evidence->push_back(
        fmt::format("{} ended ({}): {}", rank_list(ranks), place_of(*event), event->text));
  size_t count = told.size();
  for (const int64_t rank : stuck) {
    const LogEvent& event = *stories.at(rank).stuck;
    if (++count > kMostTold) continue;
    evidence->push_back(fmt::format("rank {} said ({}): {}", rank, place_of(event), event.text));
  }
}

}  // namespace lockstep
