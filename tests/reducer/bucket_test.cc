#include "reducer/bucket.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
