#include "reducer/optimizer_shards.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

using Pieces = std::vector<OptimizerShard>;

// Elements that each rank owns.
std::vector<int64_t> owned(const Pieces& pieces, int64_t world_size) {
  std::vector<int64_t> elements(static_cast<size_t>(world_size), 0);
  for (const OptimizerShard& piece : pieces)
    elements[static_cast<size_t>(piece.owner)] += piece.numel;
  return elements;
}

void expect_each_element_once(Pieces pieces, const std::vector<int64_t>& numels) {
  std::sort(pieces.begin(), pieces.end(), [](const OptimizerShard& a, const OptimizerShard& b) {
    return std::pair(a.parameter, a.begin) < std::pair(b.parameter, b.begin);
  });
  std::vector<int64_t> covered(numels.size(), 0);
  for (const OptimizerShard& piece : pieces) {
    EXPECT_GT(piece.numel, 0);
    EXPECT_EQ(piece.begin, covered[static_cast<size_t>(piece.parameter)]);
    covered[static_cast<size_t>(piece.parameter)] += piece.numel;
  }
  EXPECT_EQ(covered, numels);
}

TEST(ZeroPieces, LargestFirstToTheRankThatOwnsLeast) {
  // 12 to 0, 10 to 1, 6 to 2, the first 4 to 2, the second 4 to 1 or 2 (10 each): the lowest.
  EXPECT_EQ(zero_shards({4, 12, 6, 10, 4}, 3),
            (Pieces{{1, 0, 12, 0}, {3, 0, 10, 1}, {4, 0, 4, 1}, {2, 0, 6, 2}, {0, 0, 4, 2}}));
}

TEST(ZeroPieces, ARankMayOwnNothingAndWhatIsNotTrainedBelongsToNobody) {
  EXPECT_EQ(zero_shards({5, 0, 7}, 4), (Pieces{{2, 0, 7, 0}, {0, 0, 5, 1}}));
  EXPECT_TRUE(zero_shards({0, 0}, 2).empty());
}

TEST(ZeroPieces, NobodyOwnsMuchMoreThanItsShare) {
  const std::vector<int64_t> numels = {96, 12, 120, 10, 40, 4, 300, 30, 7, 1};
  for (const int64_t ranks : {1, 2, 3, 6, 7}) {
    const Pieces pieces = zero_shards(numels, ranks);
    expect_each_element_once(pieces, numels);
    for (const int64_t elements : owned(pieces, ranks)) EXPECT_LE(elements, 620 / ranks + 300);
  }
}

TEST(ShardedPieces, APartOfEveryBucketForEveryRank) {
  // Bucket of 5 + 4 elements on 2 ranks: parts of 5, the second padded by one.
  const auto buckets = bucket_shards({{1, 0}, {2}}, {4, 5, 3}, 2);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0], (Pieces{{1, 0, 5, 0}, {0, 0, 4, 1}}));
  EXPECT_EQ(buckets[1], (Pieces{{2, 0, 2, 0}, {2, 2, 1, 1}}));
}

TEST(ShardedPieces, PaddingMayLeaveTheLastRanksWithNothing) {
  const auto buckets = bucket_shards({{0}}, {4}, 3);  // parts of 2: 2, 2 and only padding
  EXPECT_EQ(buckets[0], (Pieces{{0, 0, 2, 0}, {0, 2, 2, 1}}));
  EXPECT_EQ(sharded_part(4, 3), 2);
}

TEST(ShardedPieces, EachElementOnceAndNobodyMoreThanAPart) {
  const std::vector<int64_t> numels = {96, 12, 120, 10, 40, 4};
  for (const int64_t ranks : {1, 2, 3, 6, 7}) {
    Pieces all;
    for (const Pieces& bucket : bucket_shards({{5, 4}, {3, 2, 1, 0}}, numels, ranks))
      all.insert(all.end(), bucket.begin(), bucket.end());
    expect_each_element_once(all, numels);
    for (const int64_t elements : owned(all, ranks))
      EXPECT_LE(elements, sharded_part(44, ranks) + sharded_part(238, ranks));
  }
}

}  // namespace
}  // namespace lockstep
