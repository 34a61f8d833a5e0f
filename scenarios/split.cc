#include "scenarios/split.h"

#include "scenarios/base/check.h"

namespace lockstep {

std::vector<int64_t> batch_indices(const Scenario& scenario, int64_t step) {
  const int64_t samples = scenario.data.options.integer("samples");
  LOCKSTEP_CHECK(step >= 1 && scenario.batch_size > 0 && samples % scenario.batch_size == 0,
                 "the plan lets only whole batches pass");
  const int64_t first = (step - 1) % (samples / scenario.batch_size) * scenario.batch_size;
  std::vector<int64_t> indices(scenario.batch_size);
  for (int64_t i = 0; i < scenario.batch_size; ++i) indices[i] = first + i;
  return indices;
}

std::vector<int64_t> shard_indices(const Scenario& scenario, int64_t step, int64_t rank) {
  LOCKSTEP_CHECK(
      rank >= 0 && rank < scenario.world_size && scenario.batch_size % scenario.world_size == 0,
      "the plan lets only equal shards pass");
  const int64_t size = scenario.batch_size / scenario.world_size;
  const std::vector<int64_t> batch = batch_indices(scenario, step);
  return {batch.begin() + rank * size, batch.begin() + (rank + 1) * size};
}

}  // namespace lockstep
