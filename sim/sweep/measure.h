#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"

namespace lockstep {

// Was the machine busy with something else? Before and after each run all cores that this program
// may use do a fixed piece of work; how long the slowest takes, against the quickest time ever
// seen, tells what else went on around the run (not what began and ended within it: that is what
// repeated rounds and outliers are for).

// Milliseconds of the slowest thread, of one for each core that this process may use, each with
// a few milliseconds of arithmetic on a quiet core. Blocks until they are done; nothing is left
// behind.
double spin_ms();

struct Spins {
  double before_ms = 0, after_ms = 0;
};

// A spin that takes longer than this times the quickest one was disturbed.
inline constexpr double kBusy = 1.3;

// The quickest of several spins in a row, where a busy moment may pass.
double quiet_spin_ms();

// Spins until one is undisturbed, five times at most, and returns the quickest: a run's own
// processes are still letting go of their memory when its end is known, which is no other work.
double settled_spin_ms(double quickest_ms, const std::function<double()>& spin = spin_ms);

bool is_contaminated(const Spins& spins, double quickest_ms);

// quiet: at most a tenth of the runs are contaminated. disturbed: at most half of them. busy: more.
// Where it is busy nothing is concluded.
struct MachineVerdict {
  std::string verdict = "quiet";
  int64_t runs = 0, contaminated = 0, repeated = 0;
  double quickest_ms = 0, median_ms = 0;  // of spins
};
// Of the runs that count; repeated: how many were measured again and do not.
MachineVerdict machine_verdict(const std::vector<Spins>& runs, double quickest_ms,
                               int64_t repeated);

// What a sweep takes from the records of one run: medians over its steps after `warmup` (a step's
// number is the mean of its ranks'), by the formulas of docs/metrics.md.
struct RunNumbers {
  double step_ms = 0;
  // From the begin of backward until all gradients are averaged: what PyTorch's own benchmarks of
  // its reducers report.
  double backward_ms = 0;
  double exposed_ms = 0;
  double skew_ms = 0;             // the largest of a step's collectives
  std::optional<double> overlap;  // nothing where nothing was communicated
  double tail_mb = 0;             // bytes of the last bucket, 10^6
  int64_t buckets = 0;            // collectives that average gradients
  int64_t steps = 0;              // that were measured
  int64_t outlier_steps = 0;      // among them, by their step_ms
};

// Places in Timeline::collectives of the step's sums of gradients, in their order: its buckets, or
// of reducers without any the sums themselves. What finds unused parameters is none.
std::vector<size_t> gradient_sums(const Timeline& timeline, const Step& step);

// Of each step after `warmup` the mean of its ranks' times. Of a run judged with metrics; else
// empty.
std::vector<double> step_times_ms(const RunResult& run, int64_t warmup);

// Of a run judged with metrics and intervals. Nothing where no step after `warmup` is whole.
std::optional<RunNumbers> numbers_of(const RunResult& run, int64_t warmup);

}  // namespace lockstep
