#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/profiler/kineto_trace.h"

namespace lockstep {

// A training in a trace of torch.profiler: which parameters it has, and when the gradient of each
// was there.

// One backward, on the trace's clock. On a GPU what the CPU came to is there when all that it had
// launched until then has ended, but for communication.
struct TracedBackward {
  std::optional<double> forward_us;  // begin of the forward before it; none: before the trace
  double begin_us = 0;
  std::vector<double> ready_us;         // of each gradient, as they came
  std::vector<TraceInterval> launches;  // of all-reduces, by the thread that computes
};

struct KinetoTraining {
  std::vector<std::vector<int64_t>> shapes;  // of parameters, in the order of their gradients
  std::string dtype;                         // of all: "float32", "float64", "bfloat16", "float16"
  std::vector<TracedBackward> backwards;     // at least one
};

// A backward begins where the graph's nodes are those of a later forward (their numbers go up). One
// that the trace's begin or end cut off is left out. Bad input: no gradient, gradients without
// shapes (record_shapes=True), of several types, on several threads, or backwards that do not have
// the same gradients in the same order, as of several models or of a checkpointed forward.
Expected<KinetoTraining> training_of(const KinetoTrace& trace);

// Medians over all backwards.
struct GradientTimes {
  std::optional<double> forward_ms;  // none: no forward has its begin in the trace
  std::vector<double> ready_ms;      // from the begin of backward, without launches, never falling
};
GradientTimes gradient_times(const KinetoTraining& training);

// When everything that the CPU had launched until then has ended; of no GPU the time itself.
double done_us(const KinetoTrace& trace, double cpu_us);

}  // namespace lockstep
