#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/log_event.h"

namespace lockstep {

// What the logs say of one rank.
struct RankStory {
  const LogEvent* victim = nullptr;     // the first time-out or lost peer
  const LogEvent* exception = nullptr;  // its own, before that
  const LogEvent* later = nullptr;      // its own, after a lost connection that it may have caught
  const LogEvent* end = nullptr;
  const LogEvent* stuck = nullptr;  // its watchdog, before the rank reported anything else
  bool stopped = false;
  bool terminated = false;         // a launcher stopped it, with SIGTERM or SIGKILL
  const LogEvent* stop = nullptr;  // of `stopped`: its launcher saw that first, of all ends
  bool progress = false;           // it told how far it was

  // The next event of the rank, in the order of the lines of a file.
  void take(const LogEvent& event);
  // Nothing but, where it was asked, how far it was.
  bool is_silent() const;
};

enum class Death { none, own, unclear };
Death death_of(const RankStory& story);

// "job.log:17"
std::string place_of(const LogEvent& event);

// How the ranks of `ended` ended, and what the watchdogs of `stuck` said: those that one line tells
// of together.
void tell_ends(const std::map<int64_t, RankStory>& stories, const RankSet& ended,
               const RankSet& stuck, std::vector<std::string>* evidence);

}  // namespace lockstep
