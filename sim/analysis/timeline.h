#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/group_table.h"
#include "sim/launch/executor.h"

namespace lockstep {

// Half-open stretches of time, and the arithmetic of metrics on merged ones.
struct Interval {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t length_ns() const { return end_ns > begin_ns ? end_ns - begin_ns : 0; }
};

// Ascending, disjoint, none empty: every instant of the given ones once.
std::vector<Interval> merged(std::vector<Interval> intervals);
int64_t length_ns(const std::vector<Interval>& merged);
// Of two merged lists.
std::vector<Interval> intersection(const std::vector<Interval>& a, const std::vector<Interval>& b);

// The primary run of all ranks on one clock (CLOCK_MONOTONIC of the launcher's host), from their
// records: what metrics, stragglers and traces are made of. It knows nothing of receipts and of
// the plan's faults, so that nobody can be accused by them.

// One rank's way through one collective; what was not recorded is absent.
struct Passage {
  std::optional<int64_t> ready_ns;     // all gradients of its bucket were there
  std::optional<int64_t> arrival_ns;   // the communicator is called
  std::optional<int64_t> launched_ns;  // it leaves the rank's queue for the wire
  std::optional<int64_t> end_ns;       // its result is there
  Phase phase{};                       // in which the rank arrived
};

struct Collective {
  uint32_t sequence = 0;
  uint8_t operation = 0;  // Operation of reducer/probe.h; records may hold a number that is none
  int64_t bucket = -1, bytes = 0;
  int64_t step = 0;             // 0: outside of steps, as in construction and for lanes
  bool same = true;             // ... operation, bucket, bytes and step on all ranks that arrived
  std::optional<size_t> group;  // its place in Timeline::groups; nothing: of all ranks
  std::vector<Passage> ranks;
};

// "all_reduce"; "collective" of a number that is no operation.
const char* operation_of(const Collective& collective);

struct PhaseInterval {
  Phase phase{};
  int64_t step = 0;
  Interval time;
  int64_t core_wait_ns = 0;  // its thread was ready, and had no core
};

// A rank's step: from the begin of its first phase to step_end; comparisons by lanes and
// checkpoints come after it and do not count.
struct RankStep {
  Interval time;
  std::vector<PhaseInterval> phases;  // in order; several of a kind with micro-batches
  int64_t others_core_wait_ns = 0;    // of its process's other threads, since the step before ended
};

// A step of which all ranks have recorded everything.
struct Step {
  int64_t step = 0;
  std::vector<RankStep> ranks;
  std::vector<size_t> collectives;  // places in Timeline::collectives, ascending sequence
};

struct Timeline {
  struct LeftOut {
    int64_t step = 0;
    std::string why;  // "rank 2: its oldest events were dropped"
  };
  int64_t world_size = 0;                          // ranks that train: ranks_of()
  int64_t origin_ns = 0;                           // the first event of any rank
  int64_t clock_uncertainty_ns = 0;                // the largest of all ranks, and of their
                                                   // devices; 0: one host, no device
  uint64_t dropped = 0;                            // events, over all ranks
  std::vector<std::vector<PhaseInterval>> phases;  // by rank: of the whole primary run
  std::vector<Collective> collectives;             // ascending sequence
  std::vector<RankGroup> groups;                   // of some of the ranks: GroupTable
  std::vector<Collective> group_collectives;       // by group, ascending; no metric counts them
  std::vector<Step> steps;                         // ascending
  std::vector<LeftOut> left_out;  // steps of which nothing can be concluded, ascending
};

// Takes the events' times as they are: of several hosts, those of RunOutcome are on one clock.
Timeline timeline_of(const RunOutcome& outcome);

}  // namespace lockstep
