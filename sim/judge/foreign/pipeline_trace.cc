#include "sim/judge/foreign/pipeline_trace.h"

#include <fmt/format.h>

namespace lockstep {

const char* to_word(OpKind kind) {
  switch (kind) {
    case OpKind::params_all_gather:
      return "params-all-gather";
    case OpKind::forward_recv:
      return "forward-recv";
    case OpKind::forward_compute:
      return "forward-compute";
    case OpKind::forward_send:
      return "forward-send";
    case OpKind::backward_recv:
      return "backward-recv";
    case OpKind::backward_compute:
      return "backward-compute";
    case OpKind::backward_send:
      return "backward-send";
    case OpKind::gc:
      return "gc";
    case OpKind::layernorm_grads_all_reduce:
      return "layernorm-grads-all-reduce";
    case OpKind::embedding_grads_all_reduce:
      return "embedding-grads-all-reduce";
    case OpKind::grads_reduce_scatter:
      return "grads-reduce-scatter";
    case OpKind::optimizer_clip_main_grad:
      return "optimizer-clip-main-grad";
    case OpKind::optimizer:
      return "optimizer";
  }
  return "";
}

bool is_compute(OpKind kind) {
  return kind == OpKind::forward_compute || kind == OpKind::backward_compute ||
         kind == OpKind::gc || kind == OpKind::optimizer;
}

std::string worker_of(const TraceOp& op) {
  return fmt::format("step {}, data-parallel rank {}, stage {}", op.step, op.dp_rank, op.stage);
}

}  // namespace lockstep
