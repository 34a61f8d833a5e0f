#include "golden/sample_cache.h"

#include "scenarios/split.h"

namespace lockstep {

SampleCache::SampleCache(const Scenario& scenario, const Batch& data)
    : scenario_(&scenario),
      data_(data),
      batches_(scenario.data.options.integer("samples") / scenario.batch_size),
      whole_(static_cast<size_t>(batches_)),
      shards_(static_cast<size_t>(batches_)) {}

const Batch& SampleCache::batch(int64_t step) {
  Batch& batch = whole_[static_cast<size_t>((step - 1) % batches_)];
  if (!batch.input.defined()) batch = select(data_, batch_indices(*scenario_, step));
  return batch;
}

const std::vector<Batch>& SampleCache::shards(int64_t step) {
  std::vector<Batch>& shards = shards_[static_cast<size_t>((step - 1) % batches_)];
  for (auto rank = static_cast<int64_t>(shards.size()); rank < scenario_->world_size; ++rank)
    shards.push_back(select(data_, shard_indices(*scenario_, step, rank)));
  return shards;
}

}  // namespace lockstep
