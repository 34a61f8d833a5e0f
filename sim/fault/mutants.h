#pragma once

#include <memory>
#include <vector>

#include "reducer/communicator.h"
#include "scenarios/scenario.h"
#include "scenarios/split.h"
#include "sim/record/recorder.h"

namespace lockstep {

// Defects put in on purpose (docs/mutants.md), beside the code under test. Each leaves a
// receipt in the records before it acts.

// Does a mutant of this kind act on this rank at construction?
bool has_mutant(const std::vector<MutantSpec>& mutants, const std::string& kind, int64_t rank);

// The rank whose samples rank `rank` is given: its own, unless duplicate_shard says otherwise.
int64_t shard_rank(const std::vector<MutantSpec>& mutants, int64_t rank, int64_t world_size);

// The samples of rank `rank` in this step: those that `split` deals to it, unless duplicate_shard,
// swap_shards, stale_shard or shift_shard say otherwise.
std::vector<int64_t> followed_samples(const std::vector<MutantSpec>& mutants, int64_t step,
                                      int64_t rank, int64_t world_size, Split* split);

// Decorator for the kinds that act on collectives: wrong_divisor, drop_bucket, drop_contribution,
// flip_bit and those of sim/fault/bucket_mutants.h between begin_backward() and end_backward(),
// swap_launches likewise, drop_weights in phase optimizer, drop_broadcast at construction. All else
// passes through. The step is the recorder's.
class MutantCommunicator : public Communicator {
 public:
  virtual void begin_backward() = 0;
  virtual void end_backward() = 0;
};
std::unique_ptr<MutantCommunicator> make_mutants(std::unique_ptr<Communicator> inner,
                                                 const std::vector<MutantSpec>& mutants,
                                                 Recorder& recorder);

}  // namespace lockstep
