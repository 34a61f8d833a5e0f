#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/judge/timeline.h"
#include "sim/plan/plan.h"

namespace lockstep {

// What real runs show of a machine, step by step: the input of a fit. From records alone.

// One all-reduce of a bucket: from when it was next on the wire on the last rank until its last
// end.
struct CollectiveSample {
  int64_t ranks = 0, bytes = 0;
  double ns = 0;
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
  bool emulated = false;
};

RunSamples samples_of(const RunPlan& plan, const Timeline& timeline, const std::string& run);

}  // namespace lockstep
