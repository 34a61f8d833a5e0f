#include "reducer/kinds/sharded.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "reducer/base/parameter_sync.h"
#include "reducer/comm/collective.h"

namespace lockstep {
namespace {

const at::Tensor& part_tensor_of(const OptimizerShard& piece,
                                 const std::vector<at::Tensor>& tensors) {
  return tensors[static_cast<size_t>(piece.parameter)];
}

void broadcast_together(const std::vector<OptimizerShard>& pieces,
                        const std::vector<at::Tensor>& tensors, Communicator& communicator,
                        Deadline deadline) {
  for (int64_t owner = 0; owner < communicator.world_size(); ++owner) {
    std::vector<at::Tensor> owned;
    for (const OptimizerShard& piece : pieces)
      if (piece.owner == owner) owned.push_back(elements_of(piece, part_tensor_of(piece, tensors)));
    broadcast_coalesced(owned, communicator, deadline, owner);
  }
}

// A bucket whose parts are under way: until they come, `whole` has what this rank has of them.
struct Gather {
  at::Tensor whole;
  at::Tensor part;
  CommWorkPtr work;
};

Gather start_gather(const std::vector<OptimizerShard>& bucket,
                    const std::vector<at::Tensor>& tensors, Communicator& communicator,
                    Deadline deadline) {
  int64_t total = 0;
  for (const OptimizerShard& piece : bucket) total += piece.numel;
  const int64_t part = sharded_part(total, communicator.world_size());
  const auto options = part_tensor_of(bucket.front(), tensors).options().requires_grad(false);
  Gather gather;
  gather.whole = at::zeros({part * communicator.world_size()}, options);
  int64_t place = 0;
  for (const OptimizerShard& piece : bucket) {
    gather.whole.narrow(0, place, piece.numel)
        .copy_(elements_of(piece, part_tensor_of(piece, tensors)));
    place += piece.numel;
  }
  gather.part = gather.whole.narrow(0, part * communicator.rank(), part).clone();
  gather.work = communicator.all_gather(gather.whole, gather.part, deadline);
  return gather;
}

BucketLayout layout_of(const ReducerOptions& options, const TrainedParameters& parameters) {
  return layout_at_construction(bucket_items(parameters), false, options.first_bucket_bytes,
                                options.bucket_cap_bytes);
}

}  // namespace

at::Tensor elements_of(const OptimizerShard& piece, const at::Tensor& whole) {
  return in_memory_order(whole.detach()).narrow(0, piece.begin, piece.numel);
}

void broadcast_shards(const std::vector<OptimizerShard>& pieces,
                      const std::vector<at::Tensor>& tensors, bool together,
                      Communicator& communicator, Deadline deadline) {
  const c10::NoGradGuard no_grad;
  if (together) return broadcast_together(pieces, tensors, communicator, deadline);
  std::vector<CommWorkPtr> works;
  for (const OptimizerShard& piece : pieces)
    works.push_back(communicator.broadcast(elements_of(piece, part_tensor_of(piece, tensors)),
                                           piece.owner, deadline));
  for (const CommWorkPtr& work : works) work->wait();
}

void all_gather_shards(const std::vector<std::vector<OptimizerShard>>& buckets,
                       const std::vector<at::Tensor>& tensors, Communicator& communicator,
                       Deadline deadline) {
  const c10::NoGradGuard no_grad;
  std::vector<Gather> gathers;
  for (const std::vector<OptimizerShard>& bucket : buckets)
    gathers.push_back(start_gather(bucket, tensors, communicator, deadline));
  for (size_t b = 0; b < buckets.size(); ++b) {
    gathers[b].work->wait();
    int64_t place = 0;
    for (const OptimizerShard& piece : buckets[b]) {
      if (piece.owner != communicator.rank())
        elements_of(piece, part_tensor_of(piece, tensors))
            .copy_(gathers[b].whole.narrow(0, place, piece.numel));
      place += piece.numel;
    }
  }
}

std::vector<std::vector<OptimizerShard>> bucket_shards_of(const ReducerOptions& options,
                                                          const NamedTensors& parameters,
                                                          int64_t world_size) {
  const TrainedParameters found = trained(parameters);
  std::vector<int64_t> numels(parameters.size(), 0);
  for (const int64_t p : found.registration)
    numels[static_cast<size_t>(p)] = parameters[static_cast<size_t>(p)].tensor.numel();
  BucketLayout layout = layout_of(options, found);
  for (std::vector<int64_t>& bucket : layout)
    for (int64_t& place : bucket) place = found.registration[static_cast<size_t>(place)];
  return bucket_shards(layout, numels, world_size);
}

ShardedReducer::ShardedReducer(const ReducerOptions& options, const NamedTensors& parameters,
                               const NamedTensors& buffers, Communicator& communicator,
                               Probe& probe)
    : ReducerBase(options, parameters, buffers, communicator, probe),
      layout_(layout_of(options, trained_)),
      pieces_(bucket_shards_of(options, parameters, world_size_)),
      storage_(layout_, trained_.tensors, trained_.sparse, communicator, world_size_),
      registered_layout_(announce(layout_)),
      parameters_(parameters) {
  for (size_t b = 0; b < layout_.size(); ++b)
    parts_.push_back(
        at::empty({storage_.flat(b).numel() / world_size_}, storage_.flat(b).options()));
  hooks_ = std::make_unique<GradientHooks>(trained_.tensors, [this](size_t place) { hook(place); });
}

void ShardedReducer::before_backward(const std::vector<at::Tensor>&) {
  pending_.clear();
  for (const auto& bucket : layout_) pending_.push_back(bucket.size());
  ready_.assign(trained_.tensors.size(), false);
  works_.clear();
  expecting_ = true;
}

void ShardedReducer::hook(size_t place) {
  std::lock_guard lock(mutex_);
  if (!expecting_) return;
  c10::NoGradGuard no_grad;
  if (ready_[place])
    throw std::runtime_error("gradient of " + trained_.names[place] +
                             " became ready twice in one step");
  ready_[place] = true;
  probe_.parameter_ready(trained_.registration[place]);
  at::Tensor view = storage_.view(place);
  at::div_out(view, trained_.tensors[place].grad(),
              at::native::wrapped_scalar_tensor(static_cast<double>(world_size_)));
  const size_t bucket = storage_.bucket_of(place);
  if (--pending_[bucket] > 0) return;
  probe_.bucket_ready(static_cast<int64_t>(bucket));
  launch_ready_buckets();
}

// In index order: a bucket that is ready early waits, so that all ranks call alike.
void ShardedReducer::launch_ready_buckets() {
  while (works_.size() < pending_.size() && pending_[works_.size()] == 0)
    works_.push_back(reduce_scatter(parts_[works_.size()], storage_.flat(works_.size())));
}

void ShardedReducer::after_backward() {
  std::lock_guard lock(mutex_);
  if (!expecting_) return;
  c10::NoGradGuard no_grad;
  expecting_ = false;
  need_gradients([&](size_t place) { return ready_[place]; });
  for (size_t b = 0; b < works_.size(); ++b) {
    works_[b]->wait();
    keep_own_elements(b);
  }
}

void ShardedReducer::keep_own_elements(size_t bucket) {
  const int64_t rank = communicator_.rank();
  int64_t place = -rank * parts_[bucket].numel();  // in this rank's part
  for (const OptimizerShard& piece : pieces_[bucket]) {
    const at::Tensor& gradient = parameters_[static_cast<size_t>(piece.parameter)].tensor.grad();
    at::Tensor elements = elements_of(piece, gradient);
    if (piece.owner == rank)
      elements.copy_(parts_[bucket].narrow(0, place, piece.numel));
    else
      elements.zero_();
    place += piece.numel;
  }
}

}  // namespace lockstep
