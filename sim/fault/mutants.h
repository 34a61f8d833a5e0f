#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/communicator.h"
#include "scenarios/scenario.h"
#include "scenarios/split.h"
#include "sim/record/recorder.h"

namespace lockstep {

// The first mutant of this kind that acts on this rank in the recorder's step, and on this bucket
// where there is one; or null. One that acts leaves a receipt.
const MutantSpec* acting(const std::vector<MutantSpec>& mutants, std::string_view kind,
                         int64_t rank, Recorder& recorder,
                         std::optional<int64_t> bucket = std::nullopt);

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

// Decorator for defects in how a rank calls collectives, outside the recording one, so that records
// say what was called: skip_wait, other_order, reorder_buckets, other_type_call, empty_sparse,
// reuse_buffer, no_deadline, forget_used. Kinds are described in scenarios/schema.json. Each leaves
// a receipt before it acts; all else passes through. Buckets are numbered by the sums of a
// backward.
class CallMutants : public CollectiveCommunicator {
 public:
  using CollectiveCommunicator::CollectiveCommunicator;
  virtual void begin_backward() = 0;
  virtual void end_backward() = 0;
};

// `inner` must outlive it.
std::unique_ptr<CallMutants> make_call_mutants(Communicator& inner,
                                               const std::vector<MutantSpec>& mutants,
                                               Recorder& recorder);

}  // namespace lockstep
