#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/profiler/kineto_training.h"
#include "sim/calibrate/backward_costs.h"
#include "sim/calibrate/fit.h"

namespace lockstep {

// What traces of torch.profiler show of a machine: the input of a fit, as of kept runs, beside
// layer times that are the scenario's (compute.profile: one of the traces).

struct TracedRank {
  KinetoTrace trace;
  KinetoTraining training;
};

// Bad input: a file that is no trace of a training, with its reason.
Expected<std::vector<TracedRank>> read_traced_ranks(const std::vector<std::string>& files);

// Why these say nothing of what a collective takes: a rank alone, ranks that are missing, or GPUs.
// Empty: they do.
std::string why_no_links(const std::vector<TracedRank>& ranks);

struct TracedSteps {
  RunSamples samples;               // collectives: only where why_no_links() is empty
  std::vector<double> bucket_ns;    // what each launch of a bucket cost the computing thread
  int64_t steps = 0, left_out = 0;  // whose buckets were told from other collectives, or not
};

// One training's ranks on one host, whose clocks are the same. A bucket is what was launched in a
// backward and has the bytes of the gradients next in their order. Bad input: ranks of different
// trainings, steps that are not the same ones (a collective that ended on a rank before another
// came to it), no step (ProfilerStep#, which profiler.step() leaves) or none whose buckets are
// known.
Expected<TracedSteps> traced_run(const std::vector<TracedRank>& ranks);

// What a step takes beside its layers, into a machine whose links are known.
void fill_steps(const TracedSteps& run, MachineModel* machine, MaybeFitted* bucket_us);

// All of it. Bad input: where why_no_links() says so, or as traced_run().
Expected<Fit> fit_traces(const std::vector<TracedRank>& ranks, int64_t cores);

}  // namespace lockstep
