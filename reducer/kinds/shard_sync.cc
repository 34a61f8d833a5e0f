#include "reducer/shard_sync.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "reducer/base/coalesced.h"
#include "reducer/comm/memory_order.h"

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

}  // namespace lockstep
