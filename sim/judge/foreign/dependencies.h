#pragma once

#include <cstddef>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/foreign/pipeline_trace.h"

namespace lockstep {

// What waits for what in a traced pipeline, by places in PipelineTrace::ops. In each step:
// * a worker computes in the order of the trace; its first forward waits for the parameters;
// * receives, and sends, of a direction go one after another; forward i waits for receive i, send i
//   for forward i, and receive i for forward i-1, backwards likewise; the first transfers of
//   gradients wait for the forward before the last one that comes before the first backward;
// * after its last compute come gc, layernorm-grads-all-reduce, embedding-grads-all-reduce,
//   grads-reduce-scatter, optimizer-clip-main-grad and optimizer, one after another, those that the
//   trace has;
// * a send and its receive meet, data-parallel ranks of a stage meet to gather parameters and to
//   reduce gradients, the first and the last stage to reduce the embedding's, all to clip.
struct Dependencies {
  std::vector<std::vector<size_t>> after;     // by op: what has to end before it begins
  std::vector<std::vector<size_t>> meetings;  // ops that begin together; each op is in one
};

// Bad input, without a file, where a part is missing, comes twice or has nobody to meet.
Expected<Dependencies> dependencies_of(const PipelineTrace& trace);

}  // namespace lockstep
