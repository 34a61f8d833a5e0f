#pragma once

#include <cstdint>
#include <functional>
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
// swap_launches likewise, drop_weights in phase optimizer, drop_broadcast at construction,
// own_ready_order in phase forward. All else passes through. The step is the recorder's. `inner`
// must outlive it, as in make_call_mutants().
std::unique_ptr<Communicator> make_mutants(Communicator& inner,
                                           const std::vector<MutantSpec>& mutants,
                                           Recorder& recorder);

// Decorator for defects in how a rank calls collectives, outside the recording one, so that records
// say what was called: skip_wait, other_order, reorder_buckets, other_type_call, empty_sparse,
// reuse_buffer, no_deadline, forget_used. Kinds are described in scenarios/schema.json. Each leaves
// a receipt before it acts; all else passes through. Buckets are numbered by the sums of a
// backward.
std::unique_ptr<Communicator> make_call_mutants(Communicator& inner,
                                                const std::vector<MutantSpec>& mutants,
                                                Recorder& recorder);

// Decorator: defects whose harm depends on who is faster, beside the code under test. They act on
// what brings the buckets of a backward together:
//   skip_wait         nobody waits for a bucket: its sum counts as done from the start
//   reuse_buffer      buckets are summed in one staging buffer, which the next one takes over
//                     whether or not the one before is done
//   unordered_launch  a pool of threads starts the sums, in any order
// `step()` is the one under way, `pick(n)` says which of n alternatives comes next where the kinds
// leave it open: 0 is what would happen without the defect. `inner` must outlive the result. Other
// kinds of mutants do nothing.
std::unique_ptr<Communicator> make_race_mutants(Communicator& inner,
                                                const std::vector<MutantSpec>& mutants,
                                                std::function<int64_t()> step,
                                                std::function<size_t(size_t)> pick);

}  // namespace lockstep
