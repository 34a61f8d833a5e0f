#include "scenarios/split.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Split, BatchesFollowEachOtherAndStartAgain) {
  Scenario scenario;
  scenario.batch_size = 6;
  scenario.world_size = 3;
  scenario.data.options.set("samples", int64_t{12});
  EXPECT_EQ(batch_indices(scenario, 1), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch_indices(scenario, 2), (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(batch_indices(scenario, 3), batch_indices(scenario, 1));
  EXPECT_EQ(shard_indices(scenario, 2, 0), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(shard_indices(scenario, 2, 2), (std::vector<int64_t>{10, 11}));
}

}  // namespace
}  // namespace lockstep
