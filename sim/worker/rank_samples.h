#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reducer/communicator.h"
#include "reducer/shard_tree.h"
#include "scenarios/split.h"
#include "scenarios/workloads/data.h"
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

  // This rank's shard of the step (from 1), a copy; of reducer data_parallel all shards, one after
  // the other. With data.workers, steps come in their order, each once, from whichever is asked
  // for first.
  Batch shard(int64_t step);
  // Of the step of the last shard(): as many of rank 0's samples, for its draws (same_masks).
  std::vector<int64_t> of_rank_0();
  // Of reducer invariant: how many samples of the last shard() belong to each of this rank's
  // virtual shards, one after the other.
  const std::vector<int64_t>& virtual_sizes() const { return virtual_sizes_; }
  ShardRange virtual_shards() const { return virtual_; }
  bool has_batch(int64_t step) const { return split_.has_batch(step, virtual_.begin); }
  // Is this step the last of an epoch?
  bool ends_epoch(int64_t step) const { return step % split_.steps_per_epoch() == 0; }
  // Samples of the step over all ranks.
  int64_t batch_samples(int64_t step) const { return split_.batch_samples(step); }
  int64_t steps_per_epoch() const { return plan_.steps_per_epoch(); }
  // The scenario as this rank follows it: mutants may have changed it.
  const Scenario& followed() const { return scenario_; }
  // How the samples of the last shard() differ from those that the plan gives this rank in that
  // step: "step 4: row 0 is sample 17, not 3"; empty where they do not.
  std::string other_samples();
  // Likewise, whether it has another number of them since this rank divides the batch differently:
  // "step 1: 32 samples, not 16: a global batch of 256, not 128".
  std::string other_batch();

 private:
  std::vector<int64_t> followed_indices(int64_t step);
  std::vector<int64_t> planned_indices(int64_t step);
  bool is_late(int64_t step) const;
  Batch take(int64_t step, const std::vector<int64_t>& indices) const;
  std::unique_ptr<Loader> make_loader(int64_t first_step);

  const Scenario scenario_;
  Split split_;
  const int64_t rank_;
  const ShardRange virtual_;  // of reducers without virtual shards: of this rank's number alone
  Split plan_;                // as the scenario has it
  int64_t step_ = 0;          // of the last shard, and its samples
  std::vector<int64_t> indices_, virtual_sizes_;
  Batch data_;                      // the whole set; undefined where rank 0 scattered
  Batch rows_;                      // then: this rank's samples of an epoch, step after step
  std::unique_ptr<Loader> loader_;  // its threads read what is above
};

}  // namespace lockstep
