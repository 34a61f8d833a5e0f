#include "reducer/shard_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace lockstep {
namespace {

using Values = std::vector<float>;

// Of very different sizes, so that every order of additions rounds in its own way.
std::vector<Values> gradients_of(int64_t shards, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-5, 5);
  std::vector<Values> gradients(static_cast<size_t>(shards), Values(64));
  for (Values& gradient : gradients)
    for (float& value : gradient) value = std::ldexp(mantissa(random), exponent(random));
  return gradients;
}

Values added(Values left, const Values& right) {
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

bool same_bits(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

Values sum_on_one_device(const std::vector<Values>& gradients) {
  ShardTree<Values> tree(static_cast<int64_t>(gradients.size()), added);
  for (size_t v = 0; v < gradients.size(); ++v)
    tree.put({0, static_cast<int64_t>(v)}, gradients[v]);
  return tree.take_sum();
}

// As W ranks do it: what each can add by itself, then the rest, in any order of arrival.
Values sum_of_ranks(const std::vector<Values>& gradients, const std::vector<int64_t>& bounds,
                    std::mt19937_64& random) {
  const auto shards = static_cast<int64_t>(gradients.size());
  std::vector<std::pair<ShardNode, Values>> travelling;
  for (size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
    std::vector<int64_t> own;
    for (int64_t v = bounds[rank]; v < bounds[rank + 1]; ++v) own.push_back(v);
    std::shuffle(own.begin(), own.end(), random);
    ShardTree<Values> tree(shards, added);
    for (const int64_t v : own) tree.put({0, v}, gradients[static_cast<size_t>(v)]);
    const auto roots = tree.take();
    std::vector<ShardNode> nodes;
    for (const auto& [node, sum] : roots) nodes.push_back(node);
    EXPECT_EQ(nodes, roots_of({bounds[rank], bounds[rank + 1]}, shards));
    travelling.insert(travelling.end(), roots.begin(), roots.end());
  }
  std::shuffle(travelling.begin(), travelling.end(), random);
  ShardTree<Values> tree(shards, added);
  for (const auto& [node, sum] : travelling) tree.put(node, sum);
  return tree.take_sum();
}

std::vector<int64_t> even_bounds(int64_t shards, int64_t world_size) {
  std::vector<int64_t> bounds = {0};
  for (int64_t rank = 0; rank < world_size; ++rank)
    bounds.push_back(shards_of_rank(shards, world_size, rank).end);
  return bounds;
}

TEST(ShardTree, NoSplitOverRanksAndNoOrderOfArrivalChangesABit) {
  std::mt19937_64 random(7);
  for (int64_t shards = 1; shards <= 33; ++shards) {
    const auto gradients = gradients_of(shards, static_cast<uint64_t>(shards));
    const Values expected = sum_on_one_device(gradients);
    for (int64_t world_size = 1; world_size <= shards; ++world_size)
      EXPECT_TRUE(
          same_bits(expected, sum_of_ranks(gradients, even_bounds(shards, world_size), random)))
          << shards << " shards on " << world_size << " ranks";
  }
}

TEST(ShardTree, NorDoAnyCutsAtAll) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t shards = 1 + static_cast<int64_t>(random() % 70);
    const auto gradients = gradients_of(shards, random());
    std::vector<int64_t> bounds = {0, shards};
    for (uint64_t cuts = random() % 9; cuts > 0; --cuts)
      bounds.push_back(static_cast<int64_t>(random()) % (shards + 1));
    for (int64_t& bound : bounds) bound = std::abs(bound);
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    EXPECT_TRUE(same_bits(sum_on_one_device(gradients), sum_of_ranks(gradients, bounds, random)));
  }
}

// Addition is commutative bit for bit: two of one pair may change places, no others.
TEST(ShardTree, TwoShardsThatChangePlacesChangeBits) {
  for (const int64_t shards : {3, 5, 6, 7, 8, 13, 24}) {
    auto gradients = gradients_of(shards, 3);
    const Values expected = sum_on_one_device(gradients);
    std::swap(gradients[0], gradients[1]);
    EXPECT_TRUE(same_bits(expected, sum_on_one_device(gradients)));
    std::swap(gradients[0], gradients[1]);
    std::swap(gradients[1], gradients[2]);
    EXPECT_FALSE(same_bits(expected, sum_on_one_device(gradients))) << shards;
  }
}

TEST(ShardTree, IsAnotherOrderThanAChain) {
  const auto gradients = gradients_of(8, 5);
  Values chain = gradients[0];
  for (size_t v = 1; v < gradients.size(); ++v) chain = added(chain, gradients[v]);
  EXPECT_FALSE(same_bits(chain, sum_on_one_device(gradients)));
}

TEST(ShardTree, RootsAreTheLargestNodesOfARange) {
  using Nodes = std::vector<ShardNode>;
  EXPECT_EQ(roots_of({0, 8}, 8), (Nodes{{3, 0}}));
  EXPECT_EQ(roots_of({2, 5}, 8), (Nodes{{1, 1}, {0, 4}}));
  EXPECT_EQ(roots_of({5, 8}, 8), (Nodes{{0, 5}, {1, 3}}));
  EXPECT_EQ(roots_of({4, 6}, 6), (Nodes{{2, 1}}));  // a half without shards adds nothing
  EXPECT_EQ(roots_of({0, 3}, 3), (Nodes{{2, 0}}));
  EXPECT_EQ(roots_of({1, 7}, 8), (Nodes{{0, 1}, {1, 1}, {1, 2}, {0, 6}}));
}

// (roots + 1) / 2 is what a rank sends, in units of an all-reduce's.
TEST(ShardTree, FewRootsTravel) {
  for (const int64_t world_size : {1, 2, 4, 8}) EXPECT_EQ(most_roots(8, world_size), 1);
  for (const int64_t world_size : {3, 5, 6, 7}) EXPECT_LE(most_roots(8, world_size), 2);
  for (const int64_t world_size : {1, 2, 3, 4, 6, 8, 12, 24})
    EXPECT_LE(most_roots(24, world_size), 2);
  for (int64_t shards = 1; shards <= 16; ++shards)
    for (int64_t world_size = 1; world_size <= shards; ++world_size)
      EXPECT_LE(most_roots(shards, world_size), 3) << shards << " on " << world_size;
}

// Two roots and no more: one rank with two and another with none, or three ranks, are not.
TEST(ShardTree, OneAdditionIsLeftOfTwoRanksWithARootEach) {
  for (const int64_t shards : {2, 4, 8, 16})
    EXPECT_TRUE(is_one_addition(2, most_roots(shards, 2))) << shards;
  for (const int64_t shards : {5, 6, 7, 10, 12})
    EXPECT_FALSE(is_one_addition(2, most_roots(shards, 2))) << shards;
  for (const int64_t ranks : {1, 3, 4, 8})
    EXPECT_FALSE(is_one_addition(ranks, most_roots(8, ranks))) << ranks;
}

TEST(ShardTree, RanksHaveEquallyManyShardsButForOne) {
  EXPECT_EQ(shards_of_rank(8, 3, 0), (ShardRange{0, 2}));
  EXPECT_EQ(shards_of_rank(8, 3, 1), (ShardRange{2, 5}));
  EXPECT_EQ(shards_of_rank(8, 3, 2), (ShardRange{5, 8}));
}

TEST(ShardTreeDeathTest, ASumOfSomeShardsOnlyIsNone) {
  ShardTree<Values> tree(4, added);
  tree.put({0, 0}, {1});
  EXPECT_DEATH(tree.take_sum(), "some shards only");
  EXPECT_DEATH(tree.put({0, 0}, {1}), "twice");
  EXPECT_DEATH(tree.put({0, 4}, {1}), "has not");
}

}  // namespace
}  // namespace lockstep
