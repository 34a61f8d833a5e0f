#pragma once

#include <cstdint>

#include "scenarios/base/error.h"

namespace lockstep {

// A training of days on hosts that fail: work goes on from checkpoint to checkpoint, a failure of
// any host loses all since the last one, and after a restart it is done again. Failures are as
// likely at any moment as at any other (exponential), during checkpoints and restarts too.
struct LongRun {
  int64_t work_ns = 0;  // without checkpoints and failures
  int64_t hosts = 1;
  int64_t mtbf_ns = 0;        // of one host, mean time between failures
  int64_t checkpoint_ns = 0;  // during which no work is done
  int64_t interval_ns = 0;    // of work between two checkpoints
  int64_t restart_ns = 0;     // from a failure until work goes on
  uint64_t seed = 0;
};

// What is out of range, with name and range; also a run that would take more than kMostNs.
InputErrors problems_of(const LongRun& run);

// The interval with which the run is shortest, to a third-order term, at least a second and at most
// all of the work: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
// restart dumps", Future Generation Computer Systems 22 (2006), whose first term is J. W. Young's
// sqrt(2 x checkpoint x mtbf), "A first order approximation to the optimum checkpoint interval",
// Communications of the ACM 17 (1974). interval_ns is not looked at.
int64_t best_interval_ns(const LongRun& run);

// The mean of all runs, exactly: with M the mean time between failures of any host, a stretch of s
// takes M e^(restart / M) (e^(s / M) - 1) (Daly, 2006); the last one ends without a checkpoint.
double expected_ns(const LongRun& run);

// Means of `runs` simulated ones, each from random numbers of its own, and what each ns went to:
// elapsed = work + lost + checkpoints + restarts.
struct LongRunNumbers {
  int64_t runs = 0;
  double elapsed_ns = 0, lost_ns = 0, checkpoints_ns = 0, restarts_ns = 0;
  double low_ns = 0, high_ns = 0;  // 95 % interval of elapsed_ns
  double failures = 0;
  double goodput = 0;  // work / elapsed
};
// Problems-free runs only. The same on any number of threads (0: as many as there are cores).
LongRunNumbers simulate_long_run(const LongRun& run, int64_t runs, int64_t threads);
// So many that they are quickly made: fewer where each has many failures.
int64_t enough_runs(const LongRun& run);

}  // namespace lockstep
