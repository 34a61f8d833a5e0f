#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "reducer/communicator.h"
#include "reducer/optimizer_shards.h"
#include "scenarios/base/named_tensor.h"

namespace lockstep {

// How what an owner has updated reaches the other ranks. Collective: all ranks call with the same
// pieces. `tensors`: without gaps in memory (memory_order.h), by registration index. Blocks; throws
// CommError.

struct ReducerOptions;

// The pieces of reducer `sharded`: of which parts of which buckets each rank's are. By bucket.
std::vector<std::vector<OptimizerShard>> bucket_shards_of(const ReducerOptions& options,
                                                          const NamedTensors& parameters,
                                                          int64_t world_size);

// The elements of `piece` in a tensor that lies in memory as its parameter does: a view,
// one-dimensional. A piece is a run of elements in memory.
at::Tensor elements_of(const OptimizerShard& piece, const at::Tensor& whole);

// A broadcast for each piece, in their order, all under way at once; or, together, one an owner.
void broadcast_shards(const std::vector<OptimizerShard>& pieces,
                      const std::vector<at::Tensor>& tensors, bool together,
                      Communicator& communicator, Deadline deadline);

// An all_gather of equal, padded parts for each bucket (see bucket_shards()).
void all_gather_shards(const std::vector<std::vector<OptimizerShard>>& buckets,
                       const std::vector<at::Tensor>& tensors, Communicator& communicator,
                       Deadline deadline);

}  // namespace lockstep
