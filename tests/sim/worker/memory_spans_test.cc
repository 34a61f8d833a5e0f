#include "sim/worker/memory_spans.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace lockstep {
namespace {

using ::testing::Pair;

MemorySpan span(uint64_t address, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                int64_t element_bytes = 4) {
  return {"", -1, address, element_bytes, std::move(sizes), std::move(strides)};
}

TEST(MemorySpans, NeighboursInOneBucketShareNothing) {
  EXPECT_FALSE(overlap(span(1000, {2, 3}, {3, 1}), span(1024, {2}, {1})));
  EXPECT_TRUE(overlap(span(1000, {2, 3}, {3, 1}), span(1020, {2}, {1})));
  EXPECT_TRUE(overlap(span(1020, {2}, {1}), span(1000, {2, 3}, {3, 1})));
}

TEST(MemorySpans, OneByteIsEnough) {
  EXPECT_TRUE(overlap(span(1000, {2}, {1}), span(1007, {8}, {1}, 1)));
  EXPECT_FALSE(overlap(span(1000, {2}, {1}), span(1008, {8}, {1}, 1)));
}

TEST(MemorySpans, ColumnsOfOneMatrixShareNothing) {
  EXPECT_FALSE(overlap(span(1000, {3}, {2}), span(1004, {3}, {2})));
  EXPECT_TRUE(overlap(span(1000, {3}, {2}), span(1008, {3}, {2})));
}

TEST(MemorySpans, AnotherMemoryFormatIsDense) {
  const MemorySpan channels_last = span(1000, {2, 3, 4, 5}, {60, 1, 15, 3});
  EXPECT_FALSE(overlaps_itself(channels_last));
  EXPECT_TRUE(overlap(channels_last, span(1476, {1}, {1})));
  EXPECT_FALSE(overlap(channels_last, span(1480, {1}, {1})));
}

TEST(MemorySpans, AnExpandedTensorOverlapsItselfAndTakesNoMoreThanItHas) {
  const MemorySpan expanded = span(1000, {4, 3}, {0, 1});
  EXPECT_TRUE(overlaps_itself(expanded));
  EXPECT_FALSE(overlap(expanded, span(1012, {3}, {1})));
  EXPECT_TRUE(overlap(expanded, span(1008, {3}, {1})));
  EXPECT_FALSE(overlaps_itself(span(1000, {}, {})));
  EXPECT_FALSE(overlaps_itself(span(1000, {1}, {0})));
}

TEST(MemorySpans, WithoutElementsNothingIsShared) {
  EXPECT_FALSE(overlap(span(1000, {0, 3}, {3, 1}), span(1000, {3}, {1})));
  EXPECT_EQ(first_overlap({span(0, {0}, {1}), span(0, {0}, {1})}), std::nullopt);
}

TEST(MemorySpans, TheFirstTwoAreNamedInTheirOwnOrder) {
  const std::vector<MemorySpan> spans = {span(2000, {9}, {1}), span(1000, {9}, {1}),
                                         span(2016, {1}, {1}), span(1004, {1}, {1})};
  EXPECT_THAT(first_overlap(spans), ::testing::Optional(Pair(0, 2)));
}

TEST(MemorySpans, EqualAddressesOnTwoDevicesAreTwoPlaces) {
  std::vector<MemorySpan> spans = {span(1000, {4}, {1}), span(1000, {4}, {1})};
  EXPECT_NE(first_overlap(spans), std::nullopt);
  spans[1].device = 1;
  EXPECT_EQ(first_overlap(spans), std::nullopt);
}

// Against sets of bytes.
TEST(MemorySpans, AnyTwoViewsOverlapWhereTheyShareAByte) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int64_t>(random() % n); };
  int shared = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::vector<MemorySpan> spans;
    std::vector<std::set<uint64_t>> bytes(2);
    for (int i = 0; i < 2; ++i) {
      spans.push_back(
          span(100 + below(40), {1 + below(3), 1 + below(3)}, {below(6), below(6)}, 1 + below(4)));
      for (int64_t x = 0; x < spans[i].sizes[0]; ++x)
        for (int64_t y = 0; y < spans[i].sizes[1]; ++y)
          for (int64_t byte = 0; byte < spans[i].element_bytes; ++byte)
            bytes[i].insert(spans[i].address + byte +
                            (x * spans[i].strides[0] + y * spans[i].strides[1]) *
                                spans[i].element_bytes);
    }
    bool expected = false;
    for (uint64_t byte : bytes[0]) expected = expected || bytes[1].contains(byte);
    ASSERT_EQ(overlap(spans[0], spans[1]), expected) << round;
    ASSERT_EQ(first_overlap(spans).has_value(), expected) << round;
    const auto elements = spans[0].sizes[0] * spans[0].sizes[1];
    ASSERT_EQ(overlaps_itself(spans[0]),
              static_cast<int64_t>(bytes[0].size()) < elements * spans[0].element_bytes);
    shared += expected;
  }
  EXPECT_GT(shared, 500);
}

}  // namespace
}  // namespace lockstep
