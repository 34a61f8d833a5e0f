#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/job.h"

namespace lockstep {

// What a simulation says, whichever engine made it. Times of a run count from its first step.

enum class Engine {
  events,           // L0: each segment of each message
  rounds,           // L1: each rank's way through each round of a collective
  closed_form,      // L2: each rank, collectives by their formula
  classes,          // L3: ranks that are alike as one
  order_statistics  // L4: the distribution of the latest of many, without naming it
};
const char* to_word(Engine engine);  // "L0" ... "L4"

struct StepNumbers {
  int64_t end_ns = 0;       // the last rank has done the step
  int64_t duration_ns = 0;  // since the last rank had done the one before
  // From the step's begin to the last rank's end of backward, but for what earlier passes exposed.
  int64_t compute_ns = 0;
  // Of the last rank to end: from its end of backward to its last bucket, in each pass, and the
  // average of parameters.
  int64_t exposed_ns = 0;
  int64_t average_ns = 0;  // of parameters, after the optimizer
  int64_t comm_ns = 0;     // union of its collectives, from the last arrival to the end of each
  int64_t skew_ns = 0;     // the largest of its collectives
  int64_t longest_ns = 0;  // of its collectives, from the first arrival to the end
  bool operator==(const StepNumbers&) const = default;
};

// Why a simulated run did not come to its end.
enum class EndedBy {
  death,     // of `rank`: its peers saw it go
  hang,      // of `rank`: it stands still, and the others timed out
  lateness,  // of `rank`: it came when others had given up, or after half of their time-out
  // All ranks had come to the collective, or were held back alike in their own queues, and it took
  // longer than its time-out allows: nobody is to blame.
  short_timeout
};
const char* to_word(EndedBy cause);

struct SimulatedFailure {
  EndedBy cause{};
  // None: nobody's (short_timeout), or one of many alike ranks, whose names engine L4 does not
  // draw.
  std::optional<int64_t> rank;
  int64_t step = 0;
  std::string place;                   // "backward", "bucket 2"
  int32_t signal = 0, exit_code = -1;  // by which it died
  int64_t at_ns = 0;                   // when it did its last; short_timeout: the last one came
  int64_t known_ns = 0;                // when the first peer gave up
  int64_t bucket = -1;                 // whose collective they were in; -1: none
  bool averaging = false;              // they were averaging parameters
  bool gathering = false;  // they were gathering a bucket of virtual shards, or parameters
  bool entered = false;    // all had come to the collective that timed out, the late rank too
  // Of the collective that timed out: the time-out, how far apart ranks came, and what it would
  // have taken from the last one on.
  int64_t timeout_ns = 0, apart_ns = 0, transfer_ns = 0;
  bool operator==(const SimulatedFailure&) const = default;
};

// Every rank's way through one step: the raw material of records. By rank; by bucket, then rank.
struct PassTrace {
  int64_t pass = 0;  // of the run
  std::vector<int64_t> forward_ns, backward_ns, wait_ns;
  std::vector<std::vector<int64_t>> ready_ns, arrival_ns, launched_ns, done_ns;
  // Of virtual shards, after backward; of units of parameters, within it and in forward. A rank
  // with fewer of them than others is kNever in forward, backward and wait of passes that it does
  // not have.
  std::vector<std::vector<int64_t>> gather_arrival_ns, gather_launched_ns, gather_done_ns;
  std::vector<size_t> gather_place;  // of each among all collectives of the pass, from 0
  // Of a bucket between copies of the parameters, right after it was reduce-scattered.
  std::vector<std::vector<int64_t>> summed_arrival_ns, summed_launched_ns, summed_done_ns;
};
struct StepTrace {
  int64_t step = 0;
  std::vector<PassTrace> passes;
  std::vector<int64_t> begin_ns, optimizer_ns, end_ns;
  std::vector<int64_t> average_ns, averaged_ns;  // arrival and end; empty: no average
  std::vector<int64_t> gone_ns;                  // when it did its last; kNever: it goes on
  std::optional<SimulatedFailure> failure;       // what is after it never came to be: kNever
};
inline constexpr int64_t kNever = INT64_MAX;

struct SimulatedRun {
  Engine engine{};
  std::vector<StepNumbers> steps;
  std::optional<SimulatedFailure> failure;
  int64_t messages = 0;  // of engine L0: segments that arrived
};

using TraceSink = std::function<void(const StepTrace&)>;

// What is said of a simulated run: over its steps without the first, which has other buckets and
// warms up, as everywhere (docs/metrics.md). Of a run of one step, that one.
struct SimulatedNumbers {
  double step_ms = 0;  // mean
  double p50_ms = 0, p95_ms = 0, p99_ms = 0, longest_ms = 0;
  double backward_ms = 0;              // mean: until all gradients are averaged
  double exposed_ms = 0, comm_ms = 0;  // means
  std::optional<double> skew_ms;       // mean of the steps' largest; none: not known
  std::optional<double> overlap;       // 1 - exposed / comm; none: no comm
  double total_s = 0;                  // of the whole run
  int64_t steps = 0;                   // that are counted
};
SimulatedNumbers numbers_of(const Job& job, const SimulatedRun& run);

// Chance that a step's collectives take longer than the time-out allows, from a run without one:
// the part of steps with one that does, from the first arrival on, with Wilson's 95 % interval.
struct Chance {
  double value = 0, low = 0, high = 0;
};
Chance wilson(int64_t hits, int64_t of);

// One job in virtual time, by one of five engines. They give the same nanoseconds wherever more
// than one of them applies; L4 draws the same distribution from other numbers.

struct SimulateOptions {
  std::optional<Engine> engine;  // nothing: the cheapest that is exact for this job
  int64_t threads = 0;           // 0: as many as there are cores. The result is the same.
  std::function<void(int64_t done, int64_t of)> progress = {};  // after each step; may be empty
};

// "L0" ... "L4", or bad input.
Expected<Engine> engine_of(const std::string& word);

// Why this engine is not exact for the job ("ranks have links of their own"); empty: it is.
std::string why_not(const Job& job, Engine engine);

// The cheapest exact engine: L3, L2, L1, in this order. L0 and L4 are only taken when asked for.
Engine cheapest_engine(const Job& job);

// Runs the job. `sink` (may be empty) gets every rank's way through every step, as it is made; then
// every rank is a member of its own. Blocks until done; memory is O(ranks + steps). Bad input:
// problems_of(job), or an engine that is not exact for it.
Expected<SimulatedRun> simulate(const Job& job, const SimulateOptions& options = {},
                                const TraceSink& sink = {});

}  // namespace lockstep
