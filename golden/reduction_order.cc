#include "golden/reduction_order.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "golden/half_types.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kRingSegmentBytesMax = 1 << 20;
constexpr int64_t kRingChunkedElementsMin = 256;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t rounded_up(int64_t a, int64_t multiple) { return divided_up(a, multiple) * multiple; }

// Half-open range of elements that are added in the same order.
struct Range {
  int64_t begin;
  int64_t end;
};

template <class T>
using Inputs = std::vector<const T*>;

// acc = g[first]; acc = g[first + stride] + acc; ... once around all ranks.
template <class T>
void add_chain(const Inputs<T>& inputs, int64_t first, int64_t stride, Range range, T* out) {
  const auto ranks = static_cast<int64_t>(inputs.size());
  const auto input = [&](int64_t k) {
    return inputs[static_cast<size_t>(((first + k * stride) % ranks + ranks) % ranks)];
  };
  std::copy(input(0) + range.begin, input(0) + range.end, out + range.begin);
  for (int64_t k = 1; k < ranks; ++k) {
    const T* next = input(k);
    for (int64_t e = range.begin; e < range.end; ++e) out[e] = next[e] + out[e];
  }
}

// Elements per rank's chunk of Gloo's ring: whole segments, at least two for each rank.
int64_t ring_chunk(int64_t ranks, int64_t count, int64_t element_bytes) {
  const int64_t total = count * element_bytes;
  const int64_t segment_max =
      element_bytes * std::max<int64_t>(1, kRingSegmentBytesMax / element_bytes);
  const int64_t segments = rounded_up(std::max(divided_up(total, segment_max), 2 * ranks), ranks);
  const int64_t segment_bytes = rounded_up(divided_up(total, segments), element_bytes);
  return segments / ranks * segment_bytes / element_bytes;
}

template <class T>
void sum_ring(const Inputs<T>& inputs, int64_t count, T* out) {
  const auto ranks = static_cast<int64_t>(inputs.size());
  const int64_t chunk = ring_chunk(ranks, count, sizeof(T));
  for (int64_t c = 0; c * chunk < count; ++c)
    add_chain<T>(inputs, c - 1, -1, {c * chunk, std::min(count, (c + 1) * chunk)}, out);
}

template <class T>
void sum_ring_chunked(const Inputs<T>& inputs, int64_t count, T* out) {
  const auto ranks = static_cast<int64_t>(inputs.size());
  const int64_t chunk = std::max(kRingChunkedElementsMin, divided_up(count, 2 * ranks));
  for (int64_t c = 0; c * chunk < count; ++c)
    add_chain<T>(inputs, c / 2, 1, {c * chunk, std::min(count, (c + 1) * chunk)}, out);
}

template <class T>
void sum_rank_order(const Inputs<T>& inputs, int64_t count, T* out) {
  add_chain<T>(inputs, 0, 1, {0, count}, out);
}

// Sums of partial trees over a short range, so that temporaries stay in the cache.
constexpr int64_t kTile = 4096;

template <class Visit>
void for_each_tile(Range range, Visit visit) {
  for (int64_t begin = range.begin; begin < range.end; begin += kTile)
    visit(Range{begin, std::min(range.end, begin + kTile)});
}

// Balanced tree over ranks [first, first + ranks), ranks a power of two. out: the range alone.
template <class T>
void add_tree(const Inputs<T>& inputs, int64_t first, int64_t ranks, Range range, T* out) {
  if (ranks == 1) {
    const T* input = inputs[static_cast<size_t>(first)];
    std::copy(input + range.begin, input + range.end, out);
    return;
  }
  const int64_t half = ranks / 2;
  std::vector<T> upper(static_cast<size_t>(range.end - range.begin));
  add_tree(inputs, first, half, range, out);
  add_tree(inputs, first + half, half, range, upper.data());
  for (size_t i = 0; i < upper.size(); ++i) out[i] = out[i] + upper[i];
}

// Ranks are split into blocks of powers of two, the largest at rank 0; the blocks' trees are merged
// from the smallest to the largest.
template <class T>
void sum_halving_doubling(const Inputs<T>& inputs, int64_t count, T* out) {
  const auto ranks = static_cast<int64_t>(inputs.size());
  std::vector<T> block_sum(static_cast<size_t>(std::min(kTile, count)));
  for_each_tile({0, count}, [&](Range tile) {
    int64_t first = ranks;
    for (int64_t block = 1; first > 0; block *= 2) {
      if ((ranks & block) == 0) continue;
      const bool smallest = first == ranks;
      first -= block;
      T* sum = out + tile.begin;
      add_tree(inputs, first, block, tile, smallest ? sum : block_sum.data());
      if (smallest) continue;
      for (int64_t i = 0; i < tile.end - tile.begin; ++i)
        sum[i] = block_sum[static_cast<size_t>(i)] + sum[i];
    }
  });
}

// Gloo's bcube: 2 x 2 x ... x q for W = 2^m q. `stride` is the distance of neighbours in a group.
struct BcubeLevel {
  int64_t peers;
  int64_t stride;
};

std::vector<BcubeLevel> bcube_levels(int64_t ranks) {
  std::vector<BcubeLevel> levels;
  int64_t stride = 1;
  for (int64_t rest = ranks; rest > 1;) {
    const int64_t peers = rest % 2 == 0 ? 2 : rest;
    levels.push_back({peers, stride});
    stride *= peers;
    rest /= peers;
  }
  return levels;
}

// What `rank` holds after `depth` exchanges: its own partial sum first, then its peers' in
// ascending order.
template <class T>
void bcube_partial(const Inputs<T>& inputs, const std::vector<BcubeLevel>& levels, size_t depth,
                   int64_t rank, Range range, T* out) {
  if (depth == 0) {
    const T* input = inputs[static_cast<size_t>(rank)];
    std::copy(input + range.begin, input + range.end, out);
    return;
  }
  const auto [peers, stride] = levels[depth - 1];
  const int64_t own = rank / stride % peers;
  std::vector<T> theirs(static_cast<size_t>(range.end - range.begin));
  bcube_partial(inputs, levels, depth - 1, rank, range, out);
  for (int64_t peer = 0; peer < peers; ++peer) {
    if (peer == own) continue;
    bcube_partial(inputs, levels, depth - 1, rank + (peer - own) * stride, range, theirs.data());
    for (size_t i = 0; i < theirs.size(); ++i) out[i] = out[i] + theirs[i];
  }
}

// Each exchange splits the elements that a rank owns among its peers, rounding up.
void for_each_owner(const std::vector<BcubeLevel>& levels, size_t depth, Range range, int64_t owner,
                    const std::function<void(int64_t, Range)>& visit) {
  if (depth == levels.size()) return visit(owner, range);
  const auto [peers, stride] = levels[depth];
  const int64_t part = divided_up(range.end - range.begin, peers);
  for (int64_t peer = 0; peer < peers; ++peer) {
    const int64_t begin = range.begin + peer * part;
    const int64_t end = std::min(range.end, begin + part);
    if (begin < end) for_each_owner(levels, depth + 1, {begin, end}, owner + peer * stride, visit);
  }
}

template <class T>
void sum_bcube(const Inputs<T>& inputs, int64_t count, T* out) {
  const auto levels = bcube_levels(static_cast<int64_t>(inputs.size()));
  for_each_owner(levels, 0, {0, count}, 0, [&](int64_t owner, Range range) {
    for_each_tile(range, [&](Range tile) {
      bcube_partial(inputs, levels, levels.size(), owner, tile, out + tile.begin);
    });
  });
}

int64_t log2_of(int64_t power) {
  int64_t log = 0;
  for (; power > 1; power /= 2) ++log;
  return log;
}

// "ring/4"; ranks_per_host 0: there are no hosts.
struct HostOrder {
  std::string algorithm;
  int64_t ranks_per_host = 0;
};

HostOrder host_order(const std::string& word) {
  const size_t slash = word.find('/');
  if (slash == std::string::npos) return {word, 0};
  int64_t ranks = 0;
  std::from_chars(word.data() + slash + 1, word.data() + word.size(), ranks);
  LOCKSTEP_CHECK(ranks > 0, "no reduction order " + word);
  return {word.substr(0, slash), ranks};
}

template <class T>
void sum_hosts(const HostOrder& order, const Inputs<T>& inputs, int64_t count, T* out) {
  const auto per_host = static_cast<size_t>(order.ranks_per_host);
  std::vector<std::vector<T>> sums;
  for (size_t first = 0; first < inputs.size(); first += per_host) {
    const size_t last = std::min(inputs.size(), first + per_host);
    const Inputs<T> host(inputs.begin() + static_cast<int64_t>(first),
                         inputs.begin() + static_cast<int64_t>(last));
    sum_in_order<T>(order.algorithm, host, count,
                    sums.emplace_back(static_cast<size_t>(count)).data());
  }
  Inputs<T> of_host;
  for (const std::vector<T>& sum : sums) of_host.push_back(sum.data());
  sum_in_order<T>(order.algorithm, of_host, count, out);
}

// Of inputs first .. first + size - 1, as far as they are there; size: a power of two.
template <class T>
std::vector<T> tree_of(const Inputs<T>& inputs, size_t first, size_t size, int64_t count) {
  if (size == 1) return std::vector<T>(inputs[first], inputs[first] + count);
  const size_t half = size / 2;
  std::vector<T> left = tree_of(inputs, first, half, count);
  if (first + half >= inputs.size()) return left;
  const std::vector<T> right = tree_of(inputs, first + half, half, count);
  for (size_t e = 0; e < left.size(); ++e) left[e] = left[e] + right[e];
  return left;
}

template <class T>
void sum_shard_tree(const Inputs<T>& inputs, int64_t count, T* out) {
  size_t size = 1;
  while (size < inputs.size()) size *= 2;
  const std::vector<T> sum = tree_of(inputs, 0, size, count);
  std::copy(sum.begin(), sum.end(), out);
}

int64_t tree_depth(int64_t inputs) {
  int64_t depth = 0;
  while (int64_t{1} << depth < inputs) ++depth;
  return depth;
}

int64_t halving_doubling_depth(int64_t ranks) {
  int64_t depth = -1;
  for (int64_t block = 1; block <= ranks; block *= 2)
    if ((ranks & block) != 0)
      depth = depth < 0 ? log2_of(block) : std::max(depth, log2_of(block)) + 1;
  return depth;
}

}  // namespace

template <class T>
void sum_in_order(const std::string& algorithm, const std::vector<const T*>& inputs, int64_t count,
                  T* out) {
  LOCKSTEP_CHECK(!inputs.empty(), "a sum over no ranks");
  if (count == 0) return;
  if (const HostOrder order = host_order(algorithm); order.ranks_per_host > 0)
    return sum_hosts(order, inputs, count, out);
  if (algorithm == "ring") return sum_ring(inputs, count, out);
  if (algorithm == "bcube") return sum_bcube(inputs, count, out);
  if (algorithm == "halving_doubling") return sum_halving_doubling(inputs, count, out);
  if (algorithm == "ring_chunked") return sum_ring_chunked(inputs, count, out);
  if (algorithm == "shard_tree") return sum_shard_tree(inputs, count, out);
  LOCKSTEP_CHECK(algorithm == "rank_order", "no reduction order " + algorithm);
  sum_rank_order(inputs, count, out);
}

template void sum_in_order<float>(const std::string&, const std::vector<const float*>&, int64_t,
                                  float*);
template void sum_in_order<double>(const std::string&, const std::vector<const double*>&, int64_t,
                                   double*);
template void sum_in_order<Float16>(const std::string&, const std::vector<const Float16*>&, int64_t,
                                    Float16*);
template void sum_in_order<Brain16>(const std::string&, const std::vector<const Brain16*>&, int64_t,
                                    Brain16*);

int64_t addition_depth(const std::string& algorithm, int64_t world_size) {
  if (const HostOrder order = host_order(algorithm); order.ranks_per_host > 0) {
    const int64_t largest = std::min(world_size, order.ranks_per_host);
    return addition_depth(order.algorithm, largest) +
           addition_depth(order.algorithm, divided_up(world_size, order.ranks_per_host));
  }
  if (algorithm == "halving_doubling") return halving_doubling_depth(world_size);
  if (algorithm == "shard_tree") return tree_depth(world_size);
  if (algorithm != "bcube") return world_size - 1;
  int64_t depth = 0;
  for (const BcubeLevel& level : bcube_levels(world_size)) depth += level.peers - 1;
  return depth;
}

}  // namespace lockstep
