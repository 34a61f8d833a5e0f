#pragma once

#include <cstdint>
#include <string>

#include "reducer/communicator.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The samples of one rank, step by step. One thread.
class RankSamples {
 public:
  // `data`: the whole set, as set_up() gave it. With a manual split only rank 0 has one, and
  // scatters the others' samples over `group`: a collective that blocks until the construction
  // time-out (throws CommError).
  RankSamples(const Scenario& scenario, const std::string& dtype, const Batch& data,
              Communicator& group);
  RankSamples(const RankSamples&) = delete;
  RankSamples& operator=(const RankSamples&) = delete;

  // This rank's shard of the step (from 1), a copy.
  Batch shard(int64_t step);
  // Samples of the step over all ranks.
  int64_t batch_samples(int64_t step);

 private:
  const Scenario scenario_;  // as this rank follows it: mutants may have changed it
  Split split_;
  int64_t source_;  // the rank whose samples these are: a mutant may say another
  Batch data_;      // the whole set; undefined where rank 0 scattered
  Batch rows_;      // then: this rank's samples of an epoch, step after step
};

}  // namespace lockstep
