#include "reducer/optimizer_shards.h"

#include <algorithm>
#include <numeric>

namespace lockstep {

std::vector<OptimizerShard> zero_shards(const std::vector<int64_t>& numels, int64_t world_size) {
  std::vector<size_t> order(numels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return numels[a] > numels[b]; });
  std::vector<int64_t> owned(static_cast<size_t>(world_size), 0);
  std::vector<OptimizerShard> pieces;
  for (const size_t parameter : order) {
    if (numels[parameter] == 0) continue;
    const auto least = std::min_element(owned.begin(), owned.end());
    pieces.push_back(
        {static_cast<int64_t>(parameter), 0, numels[parameter], least - owned.begin()});
    *least += numels[parameter];
  }
  std::stable_sort(
      pieces.begin(), pieces.end(),
      [](const OptimizerShard& a, const OptimizerShard& b) { return a.owner < b.owner; });
  return pieces;
}

int64_t sharded_part(int64_t total, int64_t world_size) {
  return (total + world_size - 1) / world_size;
}

std::vector<std::vector<OptimizerShard>> bucket_shards(const BucketLayout& layout,
                                                       const std::vector<int64_t>& numels,
                                                       int64_t world_size) {
  std::vector<std::vector<OptimizerShard>> buckets;
  for (const std::vector<int64_t>& bucket : layout) {
    int64_t total = 0;
    for (const int64_t p : bucket) total += numels[static_cast<size_t>(p)];
    const int64_t part = sharded_part(total, world_size);
    std::vector<OptimizerShard>& pieces = buckets.emplace_back();
    int64_t place = 0;  // in the flat bucket
    for (const int64_t p : bucket) {
      for (int64_t begin = 0; begin < numels[static_cast<size_t>(p)];) {
        const int64_t owner = place / part;
        const int64_t numel =
            std::min(numels[static_cast<size_t>(p)] - begin, (owner + 1) * part - place);
        pieces.push_back({p, begin, numel, owner});
        begin += numel;
        place += numel;
      }
    }
  }
  return buckets;
}

}  // namespace lockstep
