#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <semaphore>
#include <vector>

#include "reducer/reducer.h"
#include "reducer/shard_tree.h"
#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The virtual shards of one rank, side by side, where layers normalize over all shards of all
// ranks: none can go on before all have come. Each is a thread of its own, of which one runs at a
// time, in the order of their numbers: it is another's turn when a shard comes to such a layer, in
// forward or backward. What of the rank's training belongs to one shard (gradients, buffers, random
// draws) changes with it, so that model and reducer are those of shards one after the other.
//
// As a group: the rows of all shards of all ranks, in the order of their numbers. So what a layer
// adds up in that order does not depend on the number of ranks.
class ShardsTogether : public BatchGroup {
 public:
  // `ranks`: those of which each has the shards that shards_of_rank() gives it.
  ShardsTogether(BatchGroup& ranks, int64_t rank, int64_t world_size, int64_t shards);

  // body(i): all forwards and backwards of this rank's shard i (from 0) in a step; the last shard's
  // comes to its end after all the others. resumed(from, to), if given: of shard `from` another one
  // has had its turn since, and `to` goes on. Rethrows the first failure, when all have ended.
  void run(const Training& training, Reducer& reducer, const std::function<void(size_t)>& body,
           const std::function<void(size_t from, size_t to)>& resumed = {});

  // Throws std::runtime_error where shards do not come to the same layers.
  at::Tensor all_gather(const at::Tensor& row) override;

 private:
  struct Shard {
    std::binary_semaphore turn{0};
    bool ended = false;
    SampleDraws::Place draws;
  };

  void live(size_t shard, const std::function<void(size_t)>& body);
  void await_turn(size_t shard);
  void hand_on(size_t from);
  at::Tensor rows_of_all() const;

  BatchGroup& ranks_;
  const std::vector<ShardRange> ranges_;  // of each rank
  const size_t own_;                      // shards
  // Of the step under way. Only who has the turn touches them.
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<at::Tensor> rows_;  // of this rank's shards, for the layer that they come to
  at::Tensor all_;                // of the layer that they have come to
  int64_t layers_ = 0;            // come to so far
  size_t now_ = 0;                // who has the turn
  std::exception_ptr failure_;
  const Training* training_ = nullptr;
  Reducer* reducer_ = nullptr;
  std::function<void(size_t, size_t)> resumed_;
};

}  // namespace lockstep
