#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// The one tree in which reducer `invariant` adds V virtual shards, whatever the number of ranks and
// whatever comes first. Free of LibTorch: reducer, plan and tests share it.
//
// A node of level k and index i holds the sum of shards i x 2^k to (i + 1) x 2^k - 1, as far as
// there are so many: its left half, plus its right half where that has a shard. So the tree depends
// on V alone.
struct ShardNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const ShardNode&) const = default;
  bool operator<(const ShardNode& other) const {
    return std::pair(level, index) < std::pair(other.level, other.index);
  }
};

// Half-open.
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

// The consecutive shards that a rank computes: V / W each, rounded up or down. W <= V.
ShardRange shards_of_rank(int64_t shards, int64_t world_size, int64_t rank);

// The largest nodes of the tree that lie in `range` as a whole, in the order of their shards: what
// its rank can add by itself. At most 2 x log2 V of them.
std::vector<ShardNode> roots_of(ShardRange range, int64_t shards);

// Of the rank that has most.
int64_t most_roots(int64_t shards, int64_t world_size);

// Do two ranks have a root each? Then one addition is left, a + b or b + a, which are the same
// bits: an all-reduce is enough, in whatever order it adds.
bool is_one_addition(int64_t world_size, int64_t most_roots);

// The node of all V shards.
ShardNode top_of(int64_t shards);

// Adds what is put into it as soon as both halves of a node are there: in which order they come
// decides nothing. `add` gives left + right, in this order, and may reuse either. One thread.
template <class T>
class ShardTree {
 public:
  ShardTree(int64_t shards, std::function<T(T left, T right)> add)
      : shards_(shards), add_(std::move(add)) {}

  void put(ShardNode node, T sum) {
    for (;;) {
      LOCKSTEP_CHECK(!nodes_.contains(node) && (node.index << node.level) < shards_,
                     "a node of the tree twice, or one that it has not");
      if (node == top_of(shards_)) break;
      const ShardNode other = {node.level, node.index ^ 1};
      const ShardNode above = {node.level + 1, node.index / 2};
      if ((other.index << other.level) < shards_) {
        const auto found = nodes_.find(other);
        if (found == nodes_.end()) break;
        T sibling = std::move(found->second);
        nodes_.erase(found);
        sum = node < other ? add_(std::move(sum), std::move(sibling))
                           : add_(std::move(sibling), std::move(sum));
      }
      node = above;
    }
    nodes_.emplace(node, std::move(sum));
  }

  // What is there, in the order of the shards: roots_of() the range that was put in.
  std::vector<std::pair<ShardNode, T>> take() {
    std::vector<std::pair<ShardNode, T>> taken;
    for (auto& one : nodes_) taken.emplace_back(one.first, std::move(one.second));
    nodes_.clear();
    std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) {
      return a.first.index << a.first.level < b.first.index << b.first.level;
    });
    return taken;
  }

  // Of a tree into which all shards have been put.
  T take_sum() {
    LOCKSTEP_CHECK(nodes_.size() == 1 && nodes_.begin()->first == top_of(shards_),
                   "the sum of some shards only");
    T sum = std::move(nodes_.begin()->second);
    nodes_.clear();
    return sum;
  }

 private:
  int64_t shards_;
  std::function<T(T, T)> add_;
  std::map<ShardNode, T> nodes_;
};

}  // namespace lockstep
