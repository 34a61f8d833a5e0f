#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The samples of each step, gathered once and kept where later epochs return to them; of orders
// that never return only the last step's are kept. Keeps handles on `data`, and a copy of what was
// asked for.
class SampleCache {
 public:
  // `scenario` must outlive this object.
  SampleCache(const Scenario& scenario, const Batch& data);

  const Batch& batch(int64_t step);                // the global batch
  const std::vector<Batch>& shards(int64_t step);  // of every rank

 private:
  struct Place {
    int64_t step = 0;  // whose samples these are; 0: none yet
    Batch batch;
    std::vector<Batch> shards;
  };
  Place& place(int64_t step);

  int64_t world_size_;
  Split split_;
  Batch data_;
  std::vector<Place> places_;  // of the steps of one epoch, or one for all
};

}  // namespace lockstep
