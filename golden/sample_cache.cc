#include "golden/sample_cache.h"

namespace lockstep {

SampleCache::SampleCache(const Scenario& scenario, const Batch& data)
    : world_size_(scenario.world_size),
      split_(scenario),
      data_(data),
      places_(shuffles_each_epoch(scenario.split) ? 1
                                                  : static_cast<size_t>(split_.steps_per_epoch())) {
}

SampleCache::Place& SampleCache::place(int64_t step) {
  const int64_t same = split_.same_step(step);
  Place& place = places_[same == 0 ? 0 : static_cast<size_t>(same - 1)];
  const int64_t wanted = same == 0 ? step : same;
  if (place.step != wanted) place = {wanted, {}, {}};
  return place;
}

const Batch& SampleCache::batch(int64_t step) {
  Place& found = place(step);
  if (!found.batch.input.defined()) found.batch = select(data_, split_.batch(step));
  return found.batch;
}

const std::vector<Batch>& SampleCache::shards(int64_t step) {
  Place& found = place(step);
  for (auto rank = static_cast<int64_t>(found.shards.size()); rank < world_size_; ++rank)
    found.shards.push_back(select(data_, split_.shard(step, rank)));
  return found.shards;
}

}  // namespace lockstep
