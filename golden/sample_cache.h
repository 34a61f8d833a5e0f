#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// The samples of each step, gathered once and kept: steps return to them when the data set is used
// up. Keeps handles on `data`, and a copy of what was asked for.
class SampleCache {
 public:
  SampleCache(const Scenario& scenario, const Batch& data);

  const Batch& batch(int64_t step);                // the global batch
  const std::vector<Batch>& shards(int64_t step);  // of every rank

 private:
  const Scenario* scenario_;
  Batch data_;
  int64_t batches_;
  std::vector<Batch> whole_;
  std::vector<std::vector<Batch>> shards_;
};

}  // namespace lockstep
