#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/tools/explain/dump.h"

namespace lockstep {

using RankSet = std::set<int64_t>;
// "rank 3", "ranks 1, 2"
std::string rank_list(const RankSet& ranks);

enum class FlightClass {
  nothing,        // no rank waits for another
  never_entered,  // others wait in a collective that the guilty rank never entered
  held,           // it still holds what its peers completed
  late,           // it came after the time-out of those that were there
  mismatch,       // another operation, size or dtype than the others at the same sequence number
  order,          // the same collectives as the others in another order
  ahead,          // its next step, where the others had left their loop of steps
  not_started,    // it called what its peers began, and its GPU never began it
  died,           // its process ended by itself: an exception, a signal
  silent,         // left no dump and reported nothing, while all others lost it
  straggler,      // nothing failed, but the others wait for it in each step
};
const char* name_of(FlightClass kind);

// In what a mismatch shows.
enum class Difference { none, operation, size, dtype };

// What the dumps of one job say together. Sequence numbers decide; times only where a rank came
// later than a time-out, after the ranks' clocks were aligned by earlier collectives.
struct FlightFinding {
  FlightClass kind = FlightClass::nothing;
  bool decided = true;  // guilty is the whole set, or there is nothing to explain
  RankSet guilty;       // empty where undecided
  RankSet candidates;   // where undecided
  RankSet accused;      // of these, whom the dumps say something of; the others may be anything
  RankSet victims;
  std::string group, description, operation;  // of the collective in which it shows
  int64_t sequence = -1;
  std::optional<double> lateness_ms;
  std::optional<double> slowdown;  // of a straggler: of the step, against one without its lateness
  int64_t ranks = 0;               // that the job has, as far as is known
  int64_t timeout_ms = 0;          // of that collective; 0: not known
  Difference difference = Difference::none;
  int64_t signal = 0;                 // by which who died ended; 0: by an exception
  bool lost_connection = false;       // of who is silent: others saw that it was gone
  bool times_unclear = false;         // a rank may have come after a time-out: clocks do not tell
  std::vector<std::string> evidence;  // for people
  std::vector<std::string> missing;   // what keeps it undecided
  // All that is missing is which of the candidates, which did not enter a collective, came to that
  // by itself.
  bool only_order_missing = false;
};

// Nobody is guilty any more: who was, and `others`, are candidates, and `why` is what is missing.
void leave_undecided(const RankSet& others, const std::string& why, FlightFinding* finding);

// `sent_more`: ranks without a dump whose log says that they were sent more than they asked for.
FlightFinding attribute(const std::vector<FlightDump>& dumps, const RankSet& sent_more = {});

}  // namespace lockstep
