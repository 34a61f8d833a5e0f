#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "reducer/bucket.h"
#include "reducer/comm_hook.h"
#include "reducer/communicator.h"
#include "reducer/probe.h"
#include "scenarios/base/named_tensor.h"
#include "scenarios/base/part.h"

namespace lockstep {

struct ReducerOptions {
  // or c10d, flat, per_parameter, manual, sharded, data_parallel, invariant; none: each rank for
  // itself; registered: one of the program's own (registry.h)
  std::string kind = "bucketed";
  std::string name;  // of a registered one
  Options own;       // what the scenario gives a registered one under "options"
  int64_t bucket_cap_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;  // before every forward, from rank 0
  // In place of that broadcast: average_before_forward | average_after_forward, over all ranks,
  // each buffer of floating point by itself. As DDP's _register_buffer_comm_hook. bucketed and c10d
  // only.
  std::string buffer_hook = "none";
  bool synchronize_at_construction = true;  // rank 0's parameters and buffers to all
  // When averages are copied out of the buckets, kind bucketed only. at_end: when all are there, so
  // that a failure leaves all gradients local. per_bucket: of each bucket while later ones are
  // still under way; not where unused parameters are searched, which all ranks know last of all.
  // The same bits.
  std::string write_back = "at_end";
  // Parameters and buffers (names as scenarios/base/text.h reads them) that are left alone, but
  // for gradients that are averaged by hand: after backward, one all_reduce each. bucketed and c10d
  // only.
  std::vector<std::string> ignored;
  bool average_ignored = false;
  // A reducer for each of these modules, which together hold all parameters, in the order of their
  // forwards; empty: one reducer. bucketed and c10d only, without join.
  std::vector<std::string> wrapped_modules;
  CommHookOptions comm_hook;  // bucketed and c10d only
  // Of kind invariant (kinds/invariant.h): shards of a step over all ranks, at least as many as
  // ranks, and the micro-batches of each.
  int64_t virtual_shards = 0;
  int64_t micro_batches_per_shard = 1;
  bool shards_together = false;  // they take turns (Reducer::enter_shard())
  // Uneven inputs, bucketed and c10d only. none: every rank has a batch in every step. Else what
  // gradients are divided by where some have none (see Reducer::shadow()): initial_world_size |
  // active_ranks. Comm hooks divide by themselves, and do not ask.
  std::string join = "none";
  std::chrono::milliseconds construction_timeout{60'000};
  std::chrono::milliseconds collective_timeout{30'000};
};

// What a reducer says of itself, as DDP's _get_ddp_logging_data() does; of several reducers
// together, in launch order. Times are means over the steps that were measured, in nanoseconds.
struct ReducerData {
  std::vector<int64_t> bucket_bytes;          // at construction, in launch order
  std::vector<int64_t> rebuilt_bucket_bytes;  // empty: not laid out anew
  int64_t parameters = 0;                     // tensors that are reduced
  int64_t parameter_bytes = 0;
  int64_t unused_parameter_bytes = 0;  // of the last step that was measured
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;  // until the last gradient is there
  int64_t comm_ns = 0;      // from the first bucket's start to the last one's end
  int64_t overlap_ns = 0;   // from the first bucket's start to the last gradient

  // Puts another reducer's behind it; times add up.
  ReducerData& operator+=(const ReducerData& next);
};

// Turns local gradients into gradients averaged over all ranks. Life of a step:
//   before_forward(true); forward; after_forward(); before_backward(outputs); loss.backward();
//   after_backward();
// after which every param.grad() holds the average (of kind sharded: in this rank's elements, see
// reducer/kinds/sharded.h; 0 in the others; of kind data_parallel: the sum, which its one process
// made). Gradient accumulation (no_sync): for all micro-batches of a step but the last, only
// before_forward(false), forward, after_forward() and backward: gradients add up locally, and the
// last micro-batch reduces the whole sum. As in DDP, buffers are broadcast before the first forward
// after a synchronized one. Thread rule: these calls come from one thread; hooks run on the
// autograd thread. Throws CommError when a collective fails.
class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual void before_forward(bool synchronizes) = 0;
  virtual void after_forward() {}
  virtual void before_backward(const std::vector<at::Tensor>& outputs) = 0;
  virtual void after_backward() = 0;
  // With options.join, of a rank that has no batch, where the others call before_forward() and do
  // what follows: joins their collectives, contributes zeros, and changes neither gradients nor
  // parameters. False: no rank has a batch; then all have the parameters and buffers of the largest
  // rank that had the last batch. From then on ranks may have batches again. Collective; blocks.
  virtual bool shadow() { return false; }
  // The layout in use, in launch order. Empty for kinds without buckets.
  virtual BucketLayout layout() const { return {}; }
  // Of kind invariant with options.shards_together: calls are shard `index`'s from now on, of those
  // of this rank (from 0), and so are the parameters' gradients and the buffers. Those of the shard
  // before are put aside. The first call of a step is shard 0's; the last shard alone is
  // synchronized, and its after_backward() comes when all others have ended. Not in a hook.
  virtual void enter_shard(int64_t /*index*/) {}
  // Between steps. Of kinds manual, sharded and data_parallel: nothing.
  virtual ReducerData data() { return {}; }
};

// Construction is collective: it checks that all ranks agree on the manifest (throws
// CommError(rejected) naming rank, tensor and what differs, before anything is reduced), then
// broadcasts rank 0's parameters and buffers. Parameters without requires_grad are left out.
// `communicator` and `probe` must outlive the reducer; its hooks are gone when it is destroyed.
std::unique_ptr<Reducer> make_reducer(const ReducerOptions& options, const NamedTensors& parameters,
                                      const NamedTensors& buffers, Communicator& communicator,
                                      Probe& probe);

}  // namespace lockstep
