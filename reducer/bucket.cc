#include "reducer/bucket.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

struct OpenBucket {
  std::vector<int64_t> parameters;
  int64_t bytes = 0;
  size_t limit = 0;  // index of the limit in force for this key
};

BucketLayout assign_in_order_of_closing(const std::vector<BucketItem>& items,
                                        const std::vector<int64_t>& order,
                                        const std::vector<int64_t>& limits_bytes) {
  LOCKSTEP_CHECK(!limits_bytes.empty(), "no bucket limit");
  BucketLayout closed;
  std::map<int32_t, OpenBucket> open;
  std::vector<int32_t> keys;  // by first appearance
  for (int64_t parameter : order) {
    const BucketItem& item = items.at(static_cast<size_t>(parameter));
    if (item.sparse) {
      closed.push_back({parameter});
      continue;
    }
    const auto [found, is_new] = open.try_emplace(item.key);
    if (is_new) keys.push_back(item.key);
    OpenBucket& bucket = found->second;
    bucket.parameters.push_back(parameter);
    bucket.bytes += item.bytes;
    if (bucket.bytes < limits_bytes[bucket.limit]) continue;
    closed.push_back(std::move(bucket.parameters));
    bucket.parameters.clear();
    bucket.bytes = 0;
    bucket.limit = std::min(bucket.limit + 1, limits_bytes.size() - 1);
  }
  // What is left over follows with the latest key first: libstdc++'s order in the hash map that
  // LibTorch keeps the open buckets in.
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    if (!open[*key].parameters.empty()) closed.push_back(std::move(open[*key].parameters));
  }
  return closed;
}

}  // namespace

BucketLayout assign_buckets(const std::vector<BucketItem>& items, const std::vector<int64_t>& order,
                            const std::vector<int64_t>& limits_bytes) {
  BucketLayout layout = assign_in_order_of_closing(items, order, limits_bytes);
  std::vector<size_t> position(items.size(), 0);
  for (size_t place = 0; place < order.size(); ++place) {
    position[static_cast<size_t>(order[place])] = place;
  }
  // Within a bucket parameters stand in the order of `order`: the first has the smallest position.
  std::stable_sort(layout.begin(), layout.end(), [&](const auto& a, const auto& b) {
    return position[static_cast<size_t>(a.front())] < position[static_cast<size_t>(b.front())];
  });
  return layout;
}

BucketLayout layout_at_construction(const std::vector<BucketItem>& items, bool one_bucket_first,
                                    int64_t first_bucket_bytes, int64_t bucket_cap_bytes) {
  std::vector<int64_t> registration(items.size());
  std::iota(registration.begin(), registration.end(), 0);
  const std::vector<int64_t> limits =
      one_bucket_first ? std::vector<int64_t>{std::numeric_limits<int64_t>::max()}
                       : std::vector<int64_t>{first_bucket_bytes, bucket_cap_bytes};
  BucketLayout layout = assign_buckets(items, registration, limits);
  std::reverse(layout.begin(), layout.end());
  return layout;
}

BucketLayout rebuilt_layout(const std::vector<BucketItem>& items,
                            const std::vector<int64_t>& ready_order, int64_t first_bucket_bytes,
                            int64_t bucket_cap_bytes) {
  return assign_in_order_of_closing(items, ready_order, {first_bucket_bytes, bucket_cap_bytes});
}

int64_t bytes_of_mib(double mib) { return static_cast<int64_t>(mib * 1024.0 * 1024.0); }

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
