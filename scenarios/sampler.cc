#include "scenarios/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "scenarios/base/check.h"

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

}  // namespace lockstep
