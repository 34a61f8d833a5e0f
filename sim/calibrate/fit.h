#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/analysis/timeline.h"
#include "sim/calibrate/backward_costs.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// What real runs show of a machine, step by step: the input of a fit. From records alone.

// One collective of a bucket, an all-reduce or what reducer invariant has instead: from when it was
// next on the wire on the last rank until its last end.
struct CollectiveSample {
  int64_t ranks = 0, bytes = 0;
  double ns = 0;
  Operation operation = Operation::all_reduce;
};

struct RunSamples {
  std::string run;  // its directory
  std::vector<CollectiveSample> collectives;
  // By rank and step, without the first step.
  std::vector<double> load_ns, forward_ns, backward_ns;
  std::vector<double> finish_ns;  // from the last bucket's end (or of backward) to the step's
  // Of emulated compute: by how much a bucket enters its collective later than the plan's layer
  // times say, without those that a fault holds up.
  std::vector<double> late_ns;
  std::vector<BackwardSample> backwards;  // of real compute
  bool emulated = false;
};

RunSamples samples_of(const RunPlan& plan, const Timeline& timeline, const std::string& run);

// A machine fitted to runs on one host: what a collective of p ranks and n bytes takes is
//   2(p-1) alpha + 2(p-1)/p n beta max(1, p / cores),
// a ring over a loopback whose bytes the host's cores move, or half of that for an all-to-all or an
// all-gather; alpha and beta by least squares of relative errors over the medians of each
// operation, world size and size of bucket. What a step costs beside its layers are medians.

struct FittedSize {
  Operation operation = Operation::all_reduce;
  int64_t ranks = 0, bytes = 0, samples = 0;
  double measured_us = 0, fitted_us = 0;
};

struct Fit {
  MachineModel machine;
  FittedNumber latency_us, bandwidth_mb_per_s;  // resampled within each size
  bool latency_assumed = false;                 // kOneSize
  BackwardCosts backward;
  std::vector<FittedSize> sizes;             // by operation, ascending ranks, bytes
  double mean_error = 0, largest_error = 0;  // |fitted / measured - 1| over sizes
  int64_t runs = 0, samples = 0;
  bool of_traces = false;  // which say nothing of the training's cap
};

// What a constant of a step is fitted as; of no samples 0.
int64_t median_ns(const std::vector<double>& samples_ns);

// Why a latency is assumed.
extern const char* const kOneSize;

// cores: of the host that the runs shared. Bad input: runs without a single bucket's collective.
Expected<Fit> fit_machine(const std::vector<RunSamples>& runs, int64_t cores);

// What a machine file keeps of it under `fit`.
nlohmann::ordered_json as_json(const Fit& fit);

}  // namespace lockstep
