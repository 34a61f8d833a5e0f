#include "sim/worker/rank_samples.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "scenarios/base/hash.h"
#include "scenarios/faults.h"
#include "scenarios/scenario.h"
#include "sim/fault/mutants.h"

namespace lockstep {
namespace {

// Samples of rank `rank` in all steps of an epoch, step after step.
std::vector<int64_t> rows_of_rank(const Scenario& scenario, int64_t rank) {
  Split split(scenario);
  std::vector<int64_t> rows;
  for (int64_t step = 1; step <= split.steps_per_epoch(); ++step)
    for (int64_t row : followed_samples(scenario.mutants, step, rank, scenario.world_size, &split))
      rows.push_back(row);
  return rows;
}

// Of the rank that has most. Those of the others are filled up: a scatter has equal parts.
int64_t most_rows(const Scenario& scenario) {
  const Split split(scenario);
  const std::vector<int64_t> sizes = split.shard_sizes();
  return *std::max_element(sizes.begin(), sizes.end()) * split.steps_per_epoch();
}

// Rank 0 sends every rank its rows of `all`; elsewhere `all` is undefined.
at::Tensor scatter_rows(const Scenario& scenario, const at::Tensor& all,
                        const std::vector<int64_t>& row_shape, at::ScalarType type,
                        Communicator& group) {
  std::vector<int64_t> shape = row_shape;
  shape.insert(shape.begin(), most_rows(scenario));
  at::Tensor output = at::empty(shape, at::TensorOptions().dtype(type));
  at::Tensor input;
  if (group.rank() == 0) {
    std::vector<at::Tensor> parts;
    for (int64_t rank = 0; rank < group.world_size(); ++rank) {
      std::vector<int64_t> rows = rows_of_rank(scenario, rank);
      rows.resize(static_cast<size_t>(shape.front()), 0);
      parts.push_back(select({all, all}, rows).input);
    }
    input = at::cat(parts);
  }
  const std::chrono::milliseconds timeout(scenario.timeouts.construction_ms);
  group.scatter(output, input, 0, deadline_after(timeout))->wait();
  return output;
}

void use_other_seed(Scenario* scenario) {
  ++scenario->seed;
  Options& split = scenario->split.options;
  if (split.has("seed")) split.set("seed", split.integer("seed") + 1);
}

Scenario as_followed(Scenario scenario, int64_t rank) {
  if (find_fault(scenario.faults, FaultKind::mismatched_seed, rank) != nullptr)
    use_other_seed(&scenario);
  if (has_mutant(scenario.mutants, "no_set_epoch", rank))
    scenario.split.options.set("set_epoch", false);
  if (has_mutant(scenario.mutants, "no_shuffle", rank))
    scenario.split.options.set("shuffle", false);
  if (has_mutant(scenario.mutants, "plain_average", rank)) scenario.averaging = "mean";
  if (has_mutant(scenario.mutants, "batch_per_node", rank))
    scenario.batch_size =
        scenario.batch_size / ranks_per_node(scenario.split) * scenario.world_size;
  return scenario;
}

}  // namespace

RankSamples::RankSamples(const Scenario& scenario, const std::string& dtype, const Batch& data,
                         Communicator& group)
    : scenario_(as_followed(scenario, group.rank())),
      split_(scenario_),
      rank_(group.rank()),
      virtual_(has_virtual_shards(scenario)
                   ? shards_of_rank(shards_of(scenario), scenario.world_size, rank_)
                   : ShardRange{rank_, rank_ + 1}),
      plan_(scenario) {
  if (scenario.split.kind != "manual" || scenario.world_size == 1) {
    data_ = data;
    return;
  }
  const SampleSpec spec = sample_spec(scenario.data, dtype);
  rows_.input = scatter_rows(scenario, data.input, spec.input_shape, spec.input_type, group);
  rows_.target = scatter_rows(scenario, data.target, spec.target_shape, spec.target_type, group);
}

// Of each two neighbours the first may be late, so that the second comes before it.
bool RankSamples::is_late(int64_t step) const {
  return step % 2 == 1 && step < scenario_.steps &&
         substream_seed(scenario_.seed, "delivery", static_cast<uint64_t>(step)) % 2 == 1;
}

Batch RankSamples::take(int64_t step, const std::vector<int64_t>& indices) const {
  if (data_.input.defined()) return select(data_, indices);
  const auto size = static_cast<int64_t>(indices.size());  // of a rank the same in every step
  const int64_t first = (step - 1) % split_.steps_per_epoch() * size;
  return {rows_.input.narrow(0, first, size).clone(), rows_.target.narrow(0, first, size).clone(),
          indices};
}

std::unique_ptr<Loader> RankSamples::make_loader(int64_t first_step) {
  Loader::Options options;
  options.workers = loader_workers(scenario_.data);
  options.first_step = first_step;
  options.last_step = scenario_.steps;
  options.ordered = !has_mutant(scenario_.mutants, "unordered_delivery", rank_);
  options.late = [this](int64_t step) { return is_late(step); };
  options.indices = [this](int64_t step) { return followed_indices(step); };
  options.fetch = [this](int64_t step, const std::vector<int64_t>& indices) {
    return take(step, indices);
  };
  return std::make_unique<Loader>(std::move(options));
}

std::vector<int64_t> RankSamples::followed_indices(int64_t step) {
  const auto of_rank = [&](int64_t rank) {
    return followed_samples(scenario_.mutants, step, rank, scenario_.world_size, &split_);
  };
  std::vector<int64_t> all;
  if (has_virtual_shards(scenario_)) {
    for (int64_t shard = virtual_.begin; shard < virtual_.end; ++shard)
      for (const int64_t index :
           followed_samples(scenario_.mutants, step, shard, shards_of(scenario_), &split_))
        all.push_back(index);
    return all;
  }
  if (ranks_of(scenario_) == scenario_.world_size) return of_rank(rank_);
  for (int64_t rank = 0; rank < scenario_.world_size; ++rank)
    for (const int64_t index : of_rank(rank)) all.push_back(index);
  return all;
}

std::vector<int64_t> RankSamples::planned_indices(int64_t step) {
  if (has_virtual_shards(scenario_)) {
    std::vector<int64_t> all;
    for (int64_t shard = virtual_.begin; shard < virtual_.end; ++shard)
      for (const int64_t index : plan_.shard(step, shard)) all.push_back(index);
    return all;
  }
  return ranks_of(scenario_) == scenario_.world_size ? plan_.shard(step, rank_) : plan_.batch(step);
}

std::vector<int64_t> RankSamples::of_rank_0() {
  std::vector<int64_t> samples = plan_.shard(step_, 0);
  samples.resize(indices_.size(), -1);
  return samples;
}

Batch RankSamples::shard(int64_t step) {
  step_ = step;
  virtual_sizes_.clear();
  for (int64_t shard = virtual_.begin; has_virtual_shards(scenario_) && shard < virtual_.end;
       ++shard)
    virtual_sizes_.push_back(static_cast<int64_t>(
        followed_samples(scenario_.mutants, step, shard, shards_of(scenario_), &plan_).size()));
  if (loader_workers(scenario_.data) == 0) {
    indices_ = followed_indices(step);
    return take(step, indices_);
  }
  if (!loader_) loader_ = make_loader(step);
  LoadedBatch loaded = loader_->next();
  indices_ = std::move(loaded.indices);
  return std::move(loaded.batch);
}

std::string RankSamples::other_batch() {
  const size_t planned = planned_indices(step_).size();
  const int64_t batch = split_.batch_samples(step_), whole = plan_.batch_samples(step_);
  if (planned == indices_.size() || batch == whole) return "";
  return fmt::format("step {}: {} samples, not {}: a global batch of {}, not {}", step_,
                     indices_.size(), planned, batch, whole);
}

std::string RankSamples::other_samples() {
  const std::vector<int64_t> planned = planned_indices(step_);
  for (size_t row = 0; row < std::min(planned.size(), indices_.size()); ++row)
    if (planned[row] != indices_[row])
      return fmt::format("step {}: row {} is sample {}, not {}", step_, row, indices_[row],
                         planned[row]);
  if (planned.size() == indices_.size()) return "";
  return fmt::format("step {}: {} samples, not {}", step_, indices_.size(), planned.size());
}

}  // namespace lockstep
