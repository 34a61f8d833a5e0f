#include "sim/judge/intervals.h"

#include <gmock/gmock.h>

#include <random>

namespace lockstep {
namespace {

std::vector<std::pair<int64_t, int64_t>> pairs(const std::vector<Interval>& intervals) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const Interval& i : intervals) all.emplace_back(i.begin_ns, i.end_ns);
  return all;
}

TEST(Intervals, MergesWhatTouchesOrOverlaps) {
  EXPECT_THAT(pairs(merged({{5, 7}, {0, 3}, {2, 4}, {4, 5}, {9, 9}, {20, 10}})),
              testing::ElementsAre(std::pair(0, 7)));
  EXPECT_EQ(length_ns(merged({{0, 3}, {10, 11}})), 4);
  EXPECT_TRUE(merged({}).empty());
}

TEST(Intervals, IntersectsLikeSetsOfInstants) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Interval> lists[2];
    std::vector<bool> at[2] = {std::vector<bool>(40), std::vector<bool>(40)};
    for (int which = 0; which < 2; ++which)
      for (int i = 0; i < 5; ++i) {
        const auto begin = static_cast<int64_t>(random() % 40);
        const auto end = std::min<int64_t>(40, begin + static_cast<int64_t>(random() % 9));
        lists[which].push_back({begin, end});
        for (int64_t t = begin; t < end; ++t) at[which][static_cast<size_t>(t)] = true;
      }
    int64_t both = 0, one = 0;
    for (size_t t = 0; t < 40; ++t) {
      both += at[0][t] && at[1][t];
      one += at[0][t];
    }
    const auto a = merged(lists[0]), b = merged(lists[1]);
    EXPECT_EQ(length_ns(a), one);
    EXPECT_EQ(length_ns(intersection(a, b)), both);
    EXPECT_EQ(pairs(intersection(a, b)), pairs(intersection(b, a)));
  }
}

}  // namespace
}  // namespace lockstep
