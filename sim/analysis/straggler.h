#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/step_model.h"

namespace lockstep {

// Which rank the others wait for in a run that completed, from the durations of its steps alone:
// neither what was injected nor any receipt is looked at.
//
// A rank is late in a step by what its own work (what it waits for left out), or its delay in the
// queue for the wire, is beyond the median of the other ranks'; late enough is more than kLate of
// their work, and kLeastMs. Where more than half of the ranks are late, the machine was: the step
// accuses nobody. Else the latest is the step's late rank. It stands out where it is late beyond
// kNoise times the scatter of all works, and kOutMs, as well. Classes, the first that fits:
//   periodic   stands out in every k-th step (k >= 2), three times at least; at most a fifth as
//              often not, or elsewhere (less than half of the third largest does not count)
//   compute    late by its work in most steps
//   link       late by its delay in most steps: it enters on time, and its part starts late
//   wandering  different ranks stand out in most steps, one at a time (the next one by less than
//              half as much) and much alike (the lower quartile is kAlike of the upper one at
//              least), as accidents do not
//   stopped    stood still: stands out by kStopped times the others' work and kStoppedMs at least
//              once, or in steps of no pattern three times
//   wandering  again: different ranks stood still
//   starved    the machine was busy: ranks waited for a core, which explains the lateness of
//              whoever seems late, or may hide who is. Nobody is accused
//   none       nobody: also whenever this is not sure
// Sure is: that rank has kDominant of all such steps, and were it chance which rank it is (a sign
// test; for periodic, which step as well), kChance at most had it come to this. What costs less
// than kLeastCost of a step is nobody's lateness: others hardly wait for it. All of this holds for
// the steps as they were and as they would have been with a core at all times (core_waits.h); where
// the two accuse differently, or nobody is accused and kBusySteps of the steps were such that this
// need not be so, the class is starved.
struct Straggler {
  std::string late_class = "none";
  std::optional<int64_t> rank;  // absent for none, wandering and starved
  std::vector<int64_t> ranks;   // of wandering: those that were late
  std::string phase;            // where most of it comes from; empty: of link, or no single one
  double cost_ms = 0;           // per step: step_ms - without_ms
  double step_ms = 0;           // mean, by what-if
  double without_ms = 0;        // mean, with what the others take instead
  double times = 1;             // own work / the others' in its late steps, or 1 + delay / work
  std::optional<double> score;  // best rank's median work / own
  int64_t late_steps = 0, steps = 0;
  int64_t first_late_step = 0;  // its number; 0: there is none
  int64_t period = 0;           // of class periodic
  double core_wait_ms = 0;      // per step, of the rank that waited for a core the longest
  int64_t busy_steps = 0;       // in which that could pass for lateness, or hide it
  std::string text;             // one sentence
};

inline constexpr double kLate = 0.1;
inline constexpr double kDominant = 0.75;
inline constexpr double kChance = 0.01;
inline constexpr double kNoise = 4;
inline constexpr double kOutMs = 1;  // a busy scheduler's doing below it
inline constexpr double kLeastCost = 0.01;
inline constexpr double kAlike = 0.75;
inline constexpr double kStopped = 2;  // times the others' work
inline constexpr double kStoppedMs = 50;
inline constexpr double kBusySteps = 0.25;
inline constexpr const char* kStarved = "starved";

// The one sentence that the rest of it makes.
std::string text_of(const Straggler& straggler);

// Nothing where there is nothing to conclude from: no step of more than one rank.
std::optional<Straggler> find_straggler(const std::vector<StepModel>& steps);

// Chance that one given rank of `ranks` is late in at least `hits` of `steps`, were it all
// accident, times `ranks` (any of them would have been accused).
double chance_of(int64_t hits, int64_t steps, int64_t ranks);

// runs[].straggler
nlohmann::ordered_json as_json(const Straggler& straggler);

// What a busy machine did to the steps of a run: ranks that were ready to run and had no core.
struct CoreWaits {
  std::vector<double> mean_ms;  // by rank: of its main thread, per step
  // In which some rank waited so long that it could pass for late, or hide who is.
  int64_t busy_steps = 0;
};
CoreWaits core_waits_of(const std::vector<StepModel>& steps);

// The steps as they would have been with a core at all times: works and delays without what was
// waited for one, but never less than the least of the same rank's in any step, or what is usual of
// such leasts, since a rank that sleeps until a set time, or waits for others meanwhile, loses
// nothing by such a wait.
std::vector<StepModel> with_cores_at_all_times(std::vector<StepModel> steps);

}  // namespace lockstep
