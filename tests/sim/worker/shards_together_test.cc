#include "sim/worker/shards_together.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "golden/replay.h"
#include "scenarios/workloads/draws.h"

namespace lockstep {
namespace {

// Counts whose turn it is, as a reducer would see it.
class TurnReducer : public Reducer {
 public:
  void before_forward(bool) override {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override {}
  void enter_shard(int64_t index) override { turns.push_back(index); }

  std::vector<int64_t> turns;
};

class ShardsTogetherTest : public testing::Test {
 protected:
  ShardsTogetherTest() { training_.draws = std::make_shared<SampleDraws>(7); }

  // Of a group of one rank.
  void run(int64_t shards, const std::function<void(size_t, BatchGroup&)>& body) {
    run_in_lock_step(1, [&](int64_t, BatchGroup& ranks) {
      ShardsTogether together(ranks, 0, 1, shards);
      together.run(training_, reducer_, [&](size_t shard) { body(shard, together); });
    });
  }

  Training training_;
  TurnReducer reducer_;
};

at::Tensor numbers(double a, double b) { return at::tensor({a, b}, at::kDouble); }

TEST_F(ShardsTogetherTest, OneAtATimeInTheOrderOfTheirNumbers) {
  std::atomic<int> running{0};
  std::vector<size_t> order;
  run(3, [&](size_t shard, BatchGroup& group) {
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(++running, 1);
      order.push_back(shard);
      --running;
      group.all_gather(numbers(1, 2));
    }
    order.push_back(shard);
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(reducer_.turns, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

// Whatever the number of ranks, and however many shards each has.
TEST_F(ShardsTogetherTest, RowsAreThoseOfAllShardsInTheirOrder) {
  constexpr int64_t kShards = 7;
  for (const int64_t ranks : {1, 2, 3, 5, 7}) {
    std::atomic<int> seen{0};
    run_in_lock_step(ranks, [&](int64_t rank, BatchGroup& group) {
      Training training;
      TurnReducer reducer;
      ShardsTogether together(group, rank, ranks, kShards);
      const int64_t first = shards_of_rank(kShards, ranks, rank).begin;
      together.run(training, reducer, [&](size_t shard) {
        for (double layer = 0; layer < 3; ++layer) {
          const auto number = static_cast<double>(first + static_cast<int64_t>(shard));
          const at::Tensor rows = together.all_gather(numbers(number, layer));
          for (int64_t i = 0; i < kShards; ++i)
            seen += rows[i].equal(numbers(static_cast<double>(i), layer));
        }
      });
    });
    EXPECT_EQ(seen, 3 * kShards * kShards) << ranks;
  }
}

TEST_F(ShardsTogetherTest, EachGoesOnWithItsOwnRandomNumbers) {
  const auto draw = [&](int64_t sample, const std::function<void()>& between) {
    training_.draws->begin(1, {sample});
    const at::Tensor first = training_.draws->uniform({4});
    between();
    return at::cat({first, training_.draws->uniform({4})});
  };
  std::vector<at::Tensor> found(3);
  run(3, [&](size_t shard, BatchGroup& group) {
    found[shard] = draw(static_cast<int64_t>(shard), [&] { group.all_gather(numbers(0, 0)); });
  });
  for (int64_t shard = 0; shard < 3; ++shard)
    EXPECT_TRUE(found[static_cast<size_t>(shard)].equal(draw(shard, [] {}))) << shard;
}

TEST_F(ShardsTogetherTest, AShardThatFailsEndsTheOthers) {
  for (const size_t guilty : {0, 1, 2}) try {
      run(3, [&](size_t shard, BatchGroup& group) {
        group.all_gather(numbers(0, 0));
        if (shard == guilty) throw std::runtime_error("its own reason");
        group.all_gather(numbers(0, 0));
        group.all_gather(numbers(0, 0));
      });
      ADD_FAILURE() << "no exception of " << guilty;
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "its own reason");
    }
}

TEST_F(ShardsTogetherTest, ShardsThatDoNotMeetAreToldSo) {
  for (const size_t other : {0, 1, 2}) try {
      run(3, [&](size_t shard, BatchGroup& group) {
        group.all_gather(numbers(0, 0));
        if (shard != other) group.all_gather(numbers(0, 0));
      });
      ADD_FAILURE() << "no exception of " << other;
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "virtual shards do not come to the same normalizing layers");
    }
}

}  // namespace
}  // namespace lockstep
