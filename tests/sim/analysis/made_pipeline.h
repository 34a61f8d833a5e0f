#pragma once

#include <algorithm>

#include "sim/analysis/pipeline_trace.h"

namespace lockstep {

// A trace written down operation by operation, computed in the order in which they are added.
struct MadePipeline {
  PipelineTrace trace;

  MadePipeline& add(int64_t dp_rank, int64_t stage, OpKind kind, double duration_us,
                    int64_t sequence = 0, int64_t step = 1) {
    const auto begin_us = static_cast<double>(trace.ops.size());
    trace.ops.push_back({step, dp_rank, stage, kind, sequence, begin_us, duration_us});
    trace.steps = 1;
    for (const TraceOp& op : trace.ops) trace.steps = std::max(trace.steps, op.step);
    trace.dp_ranks = std::max(trace.dp_ranks, dp_rank + 1);
    trace.stages = std::max(trace.stages, stage + 1);
    return *this;
  }
};

// Two stages and two micro-batches, one forward and one backward in turn: forwards 10 us,
// backwards 20, transfers 1.
inline MadePipeline two_stages() {
  using enum OpKind;
  MadePipeline made;
  made.add(0, 0, forward_compute, 10, 0).add(0, 0, forward_compute, 10, 1);
  made.add(0, 0, backward_compute, 20, 0).add(0, 0, backward_compute, 20, 1);
  made.add(0, 1, forward_compute, 10, 0).add(0, 1, backward_compute, 20, 0);
  made.add(0, 1, forward_compute, 10, 1).add(0, 1, backward_compute, 20, 1);
  for (int64_t i = 0; i < 2; ++i) {
    made.add(0, 0, forward_send, 1, i).add(0, 1, forward_recv, 1, i);
    made.add(0, 1, backward_send, 1, i).add(0, 0, backward_recv, 1, i);
  }
  return made;
}

// Three data-parallel ranks of one stage; a forward of rank 1 takes 40 us instead of 10.
inline MadePipeline three_ranks() {
  using enum OpKind;
  MadePipeline made;
  for (int64_t rank = 0; rank < 3; ++rank) {
    made.add(rank, 0, params_all_gather, 3).add(rank, 0, forward_compute, rank == 1 ? 40 : 10);
    made.add(rank, 0, backward_compute, 20).add(rank, 0, gc, 1);
    made.add(rank, 0, grads_reduce_scatter, rank == 2 ? 50 : 5);
    made.add(rank, 0, optimizer_clip_main_grad, 1).add(rank, 0, optimizer, 2);
  }
  return made;
}

}  // namespace lockstep
