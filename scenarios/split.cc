#include "scenarios/split.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

std::vector<int64_t> in_order(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Cuts, or starts again at the head as often as it takes.
void bring_to(std::vector<int64_t>* indices, int64_t total) {
  const size_t given = indices->size();
  indices->resize(static_cast<size_t>(total));
  for (size_t i = given; i < indices->size(); ++i) (*indices)[i] = (*indices)[i - given];
}

}  // namespace

std::vector<int64_t> random_permutation(int64_t count, uint64_t seed) {
  LOCKSTEP_CHECK(count < (int64_t{1} << 32) / 20, "LibTorch draws 64 bits for more");
  std::mt19937 random(static_cast<uint32_t>(seed));  // LibTorch keeps the low half, too
  std::vector<int64_t> indices = in_order(count);
  for (int64_t i = 0; i + 1 < count; ++i)
    std::swap(indices[i], indices[i + static_cast<int64_t>(random()) % (count - i)]);
  return indices;
}

int64_t rows_per_rank(int64_t samples, int64_t world_size, bool drop) {
  return drop ? samples / world_size : (samples + world_size - 1) / world_size;
}

DealtRows deal_in_turn(const DistributedSamplerOptions& options, int64_t samples,
                       int64_t world_size, int64_t epoch) {
  std::vector<int64_t> order =
      options.shuffle ? random_permutation(samples, static_cast<uint64_t>(options.seed + epoch))
                      : in_order(samples);
  if (options.pad || options.drop_last)
    bring_to(&order, rows_per_rank(samples, world_size, options.drop_last) * world_size);
  DealtRows rows(static_cast<size_t>(world_size));
  for (size_t i = 0; i < order.size(); ++i)
    rows[i % static_cast<size_t>(world_size)].push_back(order[i]);
  return rows;
}

DealtRows deal_in_blocks(bool shuffle, bool allow_duplicates, int64_t samples, int64_t world_size,
                         int64_t epoch) {
  const int64_t each = rows_per_rank(samples, world_size, !allow_duplicates);
  // On one rank, and in order, what is left over stays out of reach or is never left over.
  std::vector<int64_t> order = in_order(samples);
  bring_to(&order, each * world_size);
  std::mt19937 random(static_cast<uint32_t>(epoch));
  if (shuffle) std::shuffle(order.begin(), order.end(), random);
  DealtRows rows;
  for (int64_t rank = 0; rank < world_size; ++rank)
    rows.emplace_back(order.begin() + rank * each, order.begin() + (rank + 1) * each);
  return rows;
}

namespace {

bool drops(const Part& split) {
  if (split.kind == "distributed") return split.options.flag("drop_last");
  return !split.options.flag("allow_duplicates");
}

// What becomes of samples that the world size does not divide; tests build splits without options.
std::string remainder(const Part& split) {
  return split.options.has("remainder") ? split.options.text("remainder") : "refuse";
}

// Samples of the whole batch that are trained on, the repeated ones among them.
int64_t trained_samples(const Scenario& scenario) {
  const int64_t world_size = shards_of(scenario);
  const std::string rule = remainder(scenario.split);
  if (rule == "refuse") return scenario.batch_size;
  return rows_per_rank(scenario.batch_size, world_size, rule == "drop") * world_size;
}

}  // namespace

bool has_sampler(const Part& split) {
  return split.kind == "distributed" || split.kind == "libtorch_random" ||
         split.kind == "libtorch_sequential";
}

bool shuffles_each_epoch(const Part& split) {
  if (split.kind == "libtorch_random") return split.options.flag("set_epoch");
  return split.kind == "distributed" && split.options.flag("shuffle") &&
         split.options.flag("set_epoch");
}

Split::Split(const Scenario& scenario)
    : scenario_(scenario),
      shards_(shards_of(scenario)),
      samples_(scenario.data.options.integer("samples")) {}

bool Split::pads() const {
  const Options& options = scenario_.split.options;
  return drops(scenario_.split) || !options.has("pad") || options.flag("pad");
}

// Of a rank, in an epoch of a sampler; and at most in a step of it.
int64_t Split::rows(int64_t rank) const {
  if (!pads()) return samples_ / shards_ + (rank < samples_ % shards_ ? 1 : 0);
  return rows_per_rank(samples_, shards_, drops(scenario_.split));
}
int64_t Split::rows_per_step() const {
  return std::max<int64_t>(1, scenario_.batch_size / shards_);
}

int64_t Split::batches(int64_t rank) const {
  const Options& options = scenario_.split.options;
  if (has_sampler(scenario_.split))
    return std::max<int64_t>(1, (rows(rank) + rows_per_step() - 1) / rows_per_step());
  if (options.has("batches_per_rank"))
    return options.integers("batches_per_rank").at(static_cast<size_t>(rank));
  return std::max<int64_t>(1, samples_ / scenario_.batch_size);
}

int64_t Split::steps_per_epoch() const {
  const Options& options = scenario_.split.options;
  if (!options.has("batches_per_rank")) return batches(0);  // no rank has more
  const std::vector<int64_t> given = options.integers("batches_per_rank");
  return *std::max_element(given.begin(), given.end());
}

bool Split::has_batch(int64_t step, int64_t rank) const {
  return (step - 1) % steps_per_epoch() < batches(rank);
}

int64_t Split::active_ranks(int64_t step) const {
  int64_t active = 0;
  for (int64_t rank = 0; rank < shards_; ++rank) active += has_batch(step, rank);
  return active;
}

bool Split::is_even() const { return active_ranks(steps_per_epoch()) == shards_; }

int64_t Split::same_step(int64_t step) const {
  return shuffles_each_epoch(scenario_.split) ? 0 : (step - 1) % steps_per_epoch() + 1;
}

std::vector<int64_t> Split::shard_sizes() const {
  std::vector<int64_t> sizes;
  const auto add = [&](int64_t size) {
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  };
  if (has_sampler(scenario_.split)) {
    const int64_t size = rows_per_step();
    for (const int64_t rank : {int64_t{0}, shards_ - 1}) {  // the others are as these
      add(std::min(size, rows(rank)));
      if (rows(rank) > size && rows(rank) % size != 0) add(rows(rank) % size);
    }
    return sizes;
  }
  for (int64_t rank = 0; rank < shards_; ++rank)
    add(static_cast<int64_t>(part_of_batch(1, rank).size()));
  return sizes;
}

int64_t Split::least_shard() const {
  const std::vector<int64_t> sizes = shard_sizes();
  return *std::min_element(sizes.begin(), sizes.end());
}

void Split::deal(int64_t epoch) {
  if (epoch == dealt_epoch_) return;
  dealt_epoch_ = epoch;
  const Options& options = scenario_.split.options;
  if (scenario_.split.kind == "distributed") {
    const DistributedSamplerOptions given{options.flag("shuffle"), options.flag("drop_last"),
                                          pads(), options.integer("seed")};
    dealt_ = deal_in_turn(given, samples_, shards_, epoch);
  } else {
    dealt_ = deal_in_blocks(scenario_.split.kind == "libtorch_random",
                            options.flag("allow_duplicates"), samples_, shards_, epoch);
  }
}

// Parts differ by one sample at most; the first ranks have the larger ones.
std::vector<int64_t> Split::part_of_batch(int64_t step, int64_t rank) const {
  const int64_t size = scenario_.batch_size;
  const int64_t first = (step - 1) % steps_per_epoch() * size;
  const int64_t trained = trained_samples(scenario_);
  const int64_t least = trained / shards_;
  const int64_t larger = trained % shards_;
  const int64_t begin = rank * least + std::min(rank, larger);
  std::vector<int64_t> indices(static_cast<size_t>(least + (rank < larger ? 1 : 0)));
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = first + (begin + static_cast<int64_t>(i)) % size;
  return indices;
}

std::vector<int64_t> Split::shard(int64_t step, int64_t rank) {
  LOCKSTEP_CHECK(step >= 1 && rank >= 0 && rank < shards_, "no such step or rank");
  if (!has_batch(step, rank)) return {};
  if (!has_sampler(scenario_.split)) {
    LOCKSTEP_CHECK(samples_ % scenario_.batch_size == 0, "the plan lets only whole batches pass");
    return part_of_batch(step, rank);
  }
  const int64_t epoch = (step - 1) / steps_per_epoch();
  deal(shuffles_each_epoch(scenario_.split) ? epoch : 0);
  const std::vector<int64_t>& rows = dealt_[static_cast<size_t>(rank)];
  const int64_t begin = (step - 1) % steps_per_epoch() * rows_per_step();
  const int64_t end = std::min(begin + rows_per_step(), static_cast<int64_t>(rows.size()));
  return {rows.begin() + begin, rows.begin() + end};
}

int64_t Split::batch_samples(int64_t step) const {
  const int64_t begin = (step - 1) % steps_per_epoch() * rows_per_step();
  const auto of_rank = [&](int64_t rank) {
    return has_sampler(scenario_.split) ? std::min(rows_per_step(), rows(rank) - begin)
                                        : static_cast<int64_t>(part_of_batch(step, rank).size());
  };
  if (is_even() && !has_sampler(scenario_.split)) return trained_samples(scenario_);
  int64_t samples = 0;
  for (int64_t rank = 0; rank < shards_; ++rank)
    if (has_batch(step, rank)) samples += of_rank(rank);
  return samples;
}

std::vector<int64_t> Split::batch(int64_t step) {
  std::vector<int64_t> indices;
  for (int64_t rank = 0; rank < shards_; ++rank)
    for (int64_t index : shard(step, rank)) indices.push_back(index);
  return indices;
}

std::vector<int64_t> batch_indices(const Scenario& scenario, int64_t step) {
  return Split(scenario).batch(step);
}

std::vector<int64_t> shard_indices(const Scenario& scenario, int64_t step, int64_t rank) {
  return Split(scenario).shard(step, rank);
}

}  // namespace lockstep
