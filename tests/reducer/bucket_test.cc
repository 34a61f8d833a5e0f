#include <gtest/gtest.h>

#include <algorithm>

#include "reducer/bucket.h"

namespace lockstep {
namespace {

std::vector<BucketItem> items_of(const std::vector<int64_t>& bytes) {
  std::vector<BucketItem> items;
  for (int64_t b : bytes) items.push_back({b, 0, false});
  return items;
}

TEST(AssignBuckets, ClosesABucketAfterItReachesTheLimit) {
  const auto items = items_of({40, 40, 40, 40, 40});
  EXPECT_EQ(assign_buckets(items, {0, 1, 2, 3, 4}, {80}), (BucketLayout{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(assign_buckets(items, {0, 1, 2, 3, 4}, {81}), (BucketLayout{{0, 1, 2}, {3, 4}}));
}

TEST(AssignBuckets, LimitsAdvanceAndTheLastOneStays) {
  const auto items = items_of({10, 10, 10, 10, 10, 10});
  EXPECT_EQ(assign_buckets(items, {0, 1, 2, 3, 4, 5}, {10, 20}),
            (BucketLayout{{0}, {1, 2}, {3, 4}, {5}}));
}

TEST(AssignBuckets, ALimitOfZeroGivesEveryParameterItsOwn) {
  EXPECT_EQ(assign_buckets(items_of({0, 8, 8}), {2, 0, 1}, {0}), (BucketLayout{{2}, {0}, {1}}));
}

TEST(AssignBuckets, AParameterIsNeverSplit) {
  EXPECT_EQ(assign_buckets(items_of({1000, 1}), {0, 1}, {10}), (BucketLayout{{0}, {1}}));
}

TEST(AssignBuckets, KeysDoNotMixAndHaveLimitsOfTheirOwn) {
  const std::vector<BucketItem> items{{10, 0, false}, {10, 1, false}, {10, 0, false},
                                      {10, 1, false}, {10, 0, false}, {10, 1, false}};
  EXPECT_EQ(assign_buckets(items, {0, 1, 2, 3, 4, 5}, {10, 20}),
            (BucketLayout{{0}, {1}, {2, 4}, {3, 5}}));
}

TEST(AssignBuckets, SparseParametersStandAlone) {
  const std::vector<BucketItem> items{{10, 0, false}, {10, 0, true}, {10, 0, false}};
  EXPECT_EQ(assign_buckets(items, {0, 1, 2}, {100}), (BucketLayout{{0, 2}, {1}}));
}

TEST(LayoutAtConstruction, OneBucketHoldsAllInRegistrationOrder) {
  EXPECT_EQ(layout_at_construction(items_of({4, 4, 4}), true, 4, 4), (BucketLayout{{0, 1, 2}}));
}

TEST(LayoutAtConstruction, WithCapsTheListIsReversed) {
  EXPECT_EQ(layout_at_construction(items_of({4, 4, 4, 4}), false, 4, 8),
            (BucketLayout{{3}, {1, 2}, {0}}));
}

TEST(RebuiltLayout, FollowsTheOrderInWhichGradientsBecameReady) {
  EXPECT_EQ(rebuilt_layout(items_of({4, 4, 4, 4}), {3, 1, 2, 0}, 4, 8),
            (BucketLayout{{3}, {1, 2}, {0}}));
}

TEST(RebuiltLayout, LeftoversComeLastWithTheLatestKeyFirst) {
  const std::vector<BucketItem> items{{4, 0, false}, {4, 1, false}};
  EXPECT_EQ(rebuilt_layout(items, {0, 1}, 100, 100), (BucketLayout{{1}, {0}}));
}

TEST(BytesOfMib, RoundsDown) {
  EXPECT_EQ(bytes_of_mib(1), 1 << 20);
  EXPECT_EQ(bytes_of_mib(0.0001), 104);
  EXPECT_EQ(bytes_of_mib(0), 0);
}

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
