#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/unpacked_bytes.h"

namespace lockstep {

// A training that others traced: data-parallel ranks, each a pipeline of stages that pass
// micro-batches forward and their gradients backward. A stage of a data-parallel rank is a worker.
// The format is that of the traces published with "Understanding stragglers in large model
// training" (docs/metrics.md, "Traces of others").

// In the order in which a worker goes through them; of the format's words with '-' for '_'.
enum class OpKind : uint8_t {
  params_all_gather,
  forward_recv,
  forward_compute,
  forward_send,
  backward_recv,
  backward_compute,
  backward_send,
  gc,
  layernorm_grads_all_reduce,
  embedding_grads_all_reduce,
  grads_reduce_scatter,
  optimizer_clip_main_grad,
  optimizer,
};
inline constexpr size_t kOpKinds = 13;
// "forward-compute"
const char* to_word(OpKind kind);
// Work of a worker's own; everything else is communication.
bool is_compute(OpKind kind);

struct TraceOp {
  int64_t step = 0, dp_rank = 0, stage = 0;
  OpKind kind{};
  int64_t sequence = 0;  // among those of its kind in its worker's step, from 0
  double begin_us = 0;
  double duration_us = 0;  // of communication: from when all take part, as it is traced
};

struct PipelineTrace {
  int64_t steps = 0, dp_ranks = 0, stages = 0;  // how many
  std::vector<TraceOp> ops;
};

// "step 16, data-parallel rank 2, stage 1"
std::string worker_of(const TraceOp& op);

// Reads a trace: an array of Chrome trace events, as it is or packed by gzip. Events of phase X
// are operations (name; pid: data-parallel rank; tid: a thread of a stage; ts, dur; args.step,
// args.seq_id, args.model_chunk), thread_name events tell the stage ("PP rank 3, ..."); others are
// skipped. Bad input names the event and the field. Read as a stream: memory grows with the
// operations kept, whatever else the file holds (limits above).
Expected<PipelineTrace> read_pipeline_trace(const std::string& path,
                                            int64_t unpacked_always = kUnpackedAlways);

}  // namespace lockstep
