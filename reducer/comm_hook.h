#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/communicator.h"
#include "scenarios/base/part.h"

namespace lockstep {

// Comm hooks: what `bucketed` and `c10d` do with a bucket instead of dividing and adding. Shipped:
// allreduce, fp16, bf16, powersgd, post_local_sgd. One of your own: derive from CommHook, say
// LOCKSTEP_REGISTER_COMM_HOOK("my_hook", MyHook) in a source of the worker (CMake:
// -DLOCKSTEP_WORKER_SOURCES=/path/my_hook.cc), and ask for it in a scenario:
// "comm_hook": {"kind": "registered", "name": "my_hook"}. examples/divide_after.cc is one.

// A bucket whose gradients are complete on this rank.
struct HookBucket {
  int64_t step = 1;   // synchronized backward passes since construction, this one included
  int64_t index = 0;  // in launch order; buckets are laid out anew after the first step
  bool is_last = false;
  at::Tensor gradients;  // [elements], flat: local sums, not divided
  // The same memory in the parameters' shapes, contiguous as LibTorch's GradBucket has them: of a
  // parameter with other strides (channels_last) the elements are in the order of its memory.
  std::vector<at::Tensor> by_parameter;
};

// The reducer's process group. Tensors must stay as they are until a work is done.
class HookGroup {
 public:
  virtual ~HookGroup() = default;
  virtual int64_t world_size() const = 0;
  // In place, the sum over ranks. Throws CommError.
  virtual CommWorkPtr all_reduce(const at::Tensor& tensor) = 0;
  // output: [world_size, input.numel()].
  virtual CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
};

// One object a rank, for all its buckets; it may keep state from step to step. Every rank must
// start the same collectives in the same order. Thread rule: one call at a time, start() on the
// autograd thread. Gradient mode is off in both calls.
class CommHook {
 public:
  // Waits, may start more collectives, and returns the averaged gradients: as many elements, of the
  // same dtype, flat and contiguous; the bucket's own memory will do. Throws CommError.
  using Finish = std::function<at::Tensor()>;
  virtual ~CommHook() = default;
  // Called in index order as buckets become ready, in the middle of backward: starts a collective
  // and returns. The Finish is called once, in index order, after all buckets have started.
  virtual Finish start(const HookBucket& bucket, HookGroup& group) = 0;
};

struct CommHookOptions {
  std::string kind = "none";   // none | allreduce | fp16 | bf16 | powersgd | post_local_sgd |
                               // registered
  std::string name;            // of a registered one
  int64_t rank = 1;            // powersgd: of the matrices that stand for a gradient
  int64_t start_step = 2;      // powersgd: the first step that compresses; before: allreduce
                               // post_local_sgd: the first of local gradients; before: allreduce
  bool error_feedback = true;  // powersgd: what a step loses is added to the next one's gradient
  uint64_t seed = 0;           // powersgd: of the first basis, the same on all ranks
};

// nullptr for "none". Throws std::runtime_error for a name that nobody registered.
std::unique_ptr<CommHook> make_comm_hook(const CommHookOptions& options);

using CommHookFactory = std::function<std::unique_ptr<CommHook>()>;
// Returns true; a name that is taken aborts. Call before main() or at least before any reducer.
bool register_comm_hook(const std::string& name, CommHookFactory factory);
// Throws std::runtime_error that says which there are, where none has the name.
void find_comm_hook(const std::string& name);

#define LOCKSTEP_REGISTER_COMM_HOOK(name, Type) \
  LOCKSTEP_REGISTERED =                         \
      ::lockstep::register_comm_hook(name, [] { return std::make_unique<Type>(); })

}  // namespace lockstep
