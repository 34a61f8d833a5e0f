#include "sim/tools/explain/late_chain.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Of twelve calls of a group: by how much each rank came late to them.
LateIn late_in(const std::string& group, const std::vector<std::pair<int64_t, double>>& came,
               int64_t late) {
  LateIn one;
  one.arrivals.by_runs = true;
  for (const auto& [rank, ms] : came) one.arrivals.ranks.push_back(rank);
  for (int64_t call = 0; call < 12; ++call) {
    std::vector<double>& all = one.arrivals.came_ms.emplace_back();
    for (const auto& [rank, ms] : came) all.push_back(static_cast<double>(call) * 100 + ms);
  }
  one.found.kind = FlightClass::straggler;
  one.found.guilty = {late};
  one.found.group = group;
  one.found.lateness_ms = 20;
  one.found.evidence = {"rank " + std::to_string(late) + " is late to group " + group};
  return one;
}

// Ranks 4 and 5 work on one layer together, and each with ranks of other layers.
std::vector<LateIn> of_a_mesh(double waits_ms) {
  return {late_in("3", {{4, 0}, {5, waits_ms}}, 5),
          late_in("5", {{0, 0}, {2, 1}, {4, 20}, {6, 0}}, 4),
          late_in("6", {{1, 0}, {3, 1}, {5, 20}, {7, 0}}, 5)};
}

TEST(LateChain, WhoWaitsForAStragglerInOneGroupIsLateInOthers) {
  const auto found = straggler_behind(of_a_mesh(19), false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->guilty, RankSet{5});
  EXPECT_EQ(found->victims, (RankSet{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_NE(found->evidence.back().find("rank 4 waited for rank 5"), std::string::npos);
}

TEST(LateChain, WhoWaitsForLessThanItIsLateIsLateByItself) {
  EXPECT_FALSE(straggler_behind(of_a_mesh(9), false));
}

TEST(LateChain, TwoThatWaitForNobodyAreTwo) {
  EXPECT_FALSE(straggler_behind(
      {late_in("5", {{0, 0}, {2, 0}, {4, 20}}, 4), late_in("6", {{1, 0}, {3, 0}, {5, 20}}, 5)},
      false));
}

TEST(LateChain, ClocksThatMayBeApartTellNoWaiting) {
  std::vector<LateIn> called = of_a_mesh(19);
  for (LateIn& one : called) one.arrivals.by_runs = false;
  EXPECT_FALSE(straggler_behind(called, false));
  EXPECT_TRUE(straggler_behind(called, true));
  called[1].found.decided = false;
  EXPECT_FALSE(straggler_behind(called, true));
}

}  // namespace
}  // namespace lockstep
