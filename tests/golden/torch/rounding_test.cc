#include <gtest/gtest.h>

#include <cmath>

#include "tests/golden/torch/judged.h"

namespace lockstep {
namespace {

TEST(Rounding, ACorrectRunIsRoundingAndItsControlIsNot) {
  for (int64_t world_size : {1, 2, 3, 4}) {
    const auto results = judged(make_rounding_lane, mlp_scenario(world_size, 4), {}, [](auto&) {});
    ASSERT_EQ(results.size(), 4u);
    for (const StatisticStep& result : results) {
      EXPECT_GT(result.r, 0);
      EXPECT_LT(result.r, 3) << world_size;
      EXPECT_GT(result.control_r, kRoundingThreshold) << world_size;
      EXPECT_GE(result.entry, 0);
    }
  }
}

TEST(Rounding, OtherOrdersAreRoundingToo) {
  ReplayRule other;
  other.algorithm = "halving_doubling";
  other.division_first_step = other.division_later = "divide_after";
  const Scenario scenario = mlp_scenario(3, 3);
  const auto items = items_of(scenario, GoldenKind::replay, other);
  const auto lane = make_rounding_lane(scenario, {});
  for (size_t step = 1; step < items.size(); ++step)
    EXPECT_LT(lane->judge(static_cast<int64_t>(step), items[step - 1].data(), items[step].data()).r,
              3);
}

TEST(Rounding, NamesTheDamagedTensor) {
  const Scenario scenario = mlp_scenario(3, 2);
  const StateLayout layout = statistic_item(scenario).layout;
  for (size_t entry : {0u, 3u, 7u}) {
    const auto results =
        judged(make_rounding_lane, scenario, {}, [&](std::vector<std::byte>& state) {
          float* gradient = gradient_in(layout, entry, state);
          for (int64_t i = 0; i < layout.entries[entry].numel; ++i) gradient[i] *= 0.75F;
        });
    for (const StatisticStep& result : results) {
      EXPECT_GT(result.r, 1000);
      EXPECT_EQ(result.entry, static_cast<int64_t>(entry));
    }
  }
}

// Of one element all null draws may lie within half of its last place, by chance.
TEST(Rounding, LuckyDrawsAccuseNobody) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    Scenario scenario = scenario_of(8, 2, linear(1, 1), randn(16, 1, 1));
    scenario.seed = seed;
    for (const StatisticStep& result : judged(make_rounding_lane, scenario, {}, [](auto&) {})) {
      EXPECT_LT(result.r, 4) << seed;
      EXPECT_GT(result.control_r, kRoundingThreshold) << seed;
    }
  }
}

TEST(Rounding, NanIsNeverRounding) {
  const Scenario scenario = mlp_scenario(2, 1);
  const StateLayout layout = statistic_item(scenario).layout;
  const auto results = judged(make_rounding_lane, scenario, {}, [&](std::vector<std::byte>& state) {
    gradient_in(layout, 2, state)[5] = std::nanf("");
  });
  EXPECT_EQ(results[0].r, std::numeric_limits<double>::infinity());
  EXPECT_EQ(results[0].entry, 2);
}

// A summed loss that is averaged over ranks is off by the factor W: null draws must not share it.
TEST(Rounding, AWrongDivisorByConstructionShows) {
  Scenario scenario = mlp_scenario(3, 1);
  scenario.optimizer = sgd(1e-4);
  scenario.loss = mse("sum");
  EXPECT_GT(judged(make_rounding_lane, scenario, {}, [](auto&) {})[0].r, 1000);
  scenario.loss = mse("mean", 1, true);
  EXPECT_GT(judged(make_rounding_lane, scenario, {}, [](auto&) {})[0].r, 1000);
  scenario.loss = mse("sum", 1, true);
  EXPECT_LT(judged(make_rounding_lane, scenario, {}, [](auto&) {})[0].r, 3);
}

TEST(Rounding, RunsOverAStream) {
  const Scenario scenario = mlp_scenario(2, 2);
  const GoldenItem item = statistic_item(scenario);
  const auto states = items_of(scenario, GoldenKind::replay);
  auto stream = StateStream::in_memory({.slot_bytes = item.bytes, .slots = 2});
  for (size_t step = 1; step <= 2; ++step) {
    std::byte* slot = stream->begin_write(kNoDeadline);
    std::memcpy(slot, states[step - 1].data(), states[0].size());
    std::memcpy(slot + item.layout.bytes, states[step].data(), states[0].size());
    stream->end_write();
  }
  std::vector<double> found;
  run_statistics(
      scenario, {}, {Statistic::rounding}, *stream, kNoDeadline,
      [&](int64_t, Statistic, const StatisticStep& result) { found.push_back(result.r); });
  const auto expected = judged(make_rounding_lane, scenario, {}, [](auto&) {});
  EXPECT_EQ(found, (std::vector<double>{expected[0].r, expected[1].r}));
}

}  // namespace
}  // namespace lockstep
