#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/explore/scheduler.h"

namespace lockstep {

// Which schedules of a scenario are run.
struct ExploreSpec {
  int64_t schedules = 10'000;  // at most, over all groups
  uint64_t seed = 1;           // schedule i has seed schedule_seed(seed, i)
  bool exhaustive = false;     // depth first instead of drawn
  // Of drawn ones: see SeededChooser. Of exhaustive ones: at most so many; absent: 2.
  std::optional<int64_t> preemptions;
  std::optional<uint64_t> replay;  // only the schedule of this seed, kReplays times
  bool all = false;                // go on after a finding
  int64_t jobs = 0;                // groups side by side; 0: one a processor
};
inline constexpr int64_t kReplays = 100;
inline constexpr int64_t kExhaustivePreemptions = 2;
// Never 0, which stands for the usual schedule, and below 2^53, so that any JSON reader keeps it.
uint64_t schedule_seed(uint64_t seed, int64_t index);

// What a finding shows in as little as possible.
struct SmallestCase {
  int64_t steps = 0;
  int64_t world_size = 0;
  std::vector<std::string> parameters;  // that are trained; the others are frozen
  int64_t preemptions = 0;              // ranks interrupted though they could have gone on
  int64_t decisions = 0;                // that are not the usual ones, preemptions included
  ScheduleFailure failure;
  std::vector<ScheduledAct> acts;  // all of the schedule, in order
};

// kind: different_bits (from the golden run or, without one, from the usual schedule),
// use_before_completion (what is only there until a completion is in the result), lost_update (a
// buffer was written while in flight), released_in_flight, mismatched_collective, deadlock, error
// (an exception).
struct ExploreFinding {
  ScheduleFailure failure;
  std::string kind() const { return failure.kind; }
  int64_t schedule = 0;          // number of it, from 1
  std::optional<uint64_t> seed;  // absent: exhaustive, where the number says as much
  int64_t count = 1;             // schedules with this kind of finding
  SmallestCase smallest = {};
};

// Of one scenario.
struct ExploreResult {
  int64_t explored = 0;
  bool exhausted = false;  // all of them, with at most so many preemptions
  int64_t distinct = 0;    // schedules with decisions of their own, counted to 10 million
  double decisions = 0;    // a schedule, on average
  int64_t jobs = 0;        // groups side by side
  std::string reference;   // replay: the golden run; usual: the usual schedule
  int64_t steps = 0, world_size = 0;
  int64_t duration_ms = 0;               // of the schedules alone
  int64_t reproduced = 0;                // of kReplays, with `replay`
  std::vector<ExploreFinding> findings;  // the first of each kind
  int signal = 0;                        // that interrupted it
  std::string broken;                    // what broke down; empty: nothing
  std::string libraries;                 // of the worker, a line of JSON
};

nlohmann::ordered_json as_json(const ExploreSpec& spec);
ExploreSpec explore_spec_from_json(const nlohmann::ordered_json& json);
nlohmann::ordered_json as_json(const ExploreResult& result);
ExploreResult explore_result_from_json(const nlohmann::ordered_json& json);

}  // namespace lockstep
