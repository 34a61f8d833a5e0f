#include "golden/golden_run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "golden/compare.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"
#include "tests/golden/torch/scenarios.h"

namespace lockstep {
namespace {

StateLayout layout_of(const Scenario& scenario, GoldenKind kind = GoldenKind::replay) {
  return golden_item(scenario, kind, false).layout;
}

TEST(GoldenRun, IsTheSameTwice) {
  for (GoldenKind kind :
       {GoldenKind::replay, GoldenKind::float64, GoldenKind::exact, GoldenKind::one_device}) {
    const Scenario scenario = mlp_scenario(3, 4);
    EXPECT_EQ(items_of(scenario, kind), items_of(scenario, kind)) << to_word(kind);
  }
}

TEST(GoldenRun, StartsWithoutGradientsAndOptimizerState) {
  const Scenario scenario = mlp_scenario(2, 1);
  const StateLayout layout = layout_of(scenario);
  const auto items = items_of(scenario, GoldenKind::replay);
  ASSERT_EQ(items.size(), 2u);
  for (size_t e = 0; e < layout.entries.size(); ++e) {
    const auto place = static_cast<size_t>(layout.presence_offset) + e;
    const bool parameter = layout.entries[e].kind == StateKind::parameter;
    EXPECT_EQ(items[0][place], std::byte{parameter}) << layout.entries[e].name;
    EXPECT_EQ(items[1][place], std::byte{1}) << layout.entries[e].name;
  }
}

// W = 1: plain training by hand, without layout, average or stream.
TEST(GoldenRun, OneRankIsPlainTraining) {
  for (const char* zero_grad : {"zero", "none"}) {
    Scenario scenario = mlp_scenario(1, 5);
    scenario.zero_grad = zero_grad;
    lockstep::Setup setup = set_up(scenario, "float32", 0);
    Training& training = setup.training;
    for (int64_t step = 1; step <= scenario.steps; ++step) {
      clear_gradients(training.parameters, zero_grad);
      loss_of(scenario.loss, training.model->forward(setup.data.input), setup.data.target, 1)
          .backward();
      training.optimizer->step();
    }
    const StateLayout layout = layout_of(scenario);
    std::vector<std::byte> expected(static_cast<size_t>(layout.bytes));
    copy_state(training, layout, expected.data());
    EXPECT_EQ(items_of(scenario, GoldenKind::replay).back(), expected) << zero_grad;
    EXPECT_EQ(items_of(scenario, GoldenKind::exact).back(), expected) << zero_grad;
  }
}

// Two ranks, where order does not matter: the average of the shards' gradients, written by hand.
TEST(GoldenRun, TwoRanksAreAveraged) {
  const Scenario scenario = mlp_scenario(2, 1);
  const GoldenItem item = golden_item(scenario, GoldenKind::replay, true);
  const auto items = items_of(scenario, GoldenKind::replay, {}, true);
  lockstep::Setup setup = set_up(scenario, "float32", 0);
  std::vector<std::vector<at::Tensor>> local;
  for (int64_t rank = 0; rank < 2; ++rank) {
    const Batch shard = select(setup.data, shard_indices(scenario, 1, rank));
    clear_gradients(setup.training.parameters, "none");
    loss_of(scenario.loss, setup.training.model->forward(shard.input), shard.target, 2).backward();
    local.emplace_back();
    for (const NamedTensor& p : setup.training.parameters) local.back().push_back(p.tensor.grad());
  }
  for (const StateEntry& entry : item.layout.entries) {
    if (entry.kind != StateKind::gradient) continue;
    const auto p = static_cast<size_t>(entry.parameter);
    const at::Tensor average = local[0][p] * 0.5 + local[1][p] * 0.5;
    EXPECT_EQ(std::memcmp(items[1].data() + entry.offset, average.data_ptr(),
                          static_cast<size_t>(entry.bytes)),
              0)
        << entry.name;
    for (int64_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(
          std::memcmp(items[1].data() + item.layout.bytes + rank * item.shard_bytes + entry.offset,
                      local[static_cast<size_t>(rank)][p].data_ptr(),
                      static_cast<size_t>(entry.bytes)),
          0)
          << entry.name << " of rank " << rank;
  }
}

// Each part of a rule changes bits where it can (W = 3), and only there.
TEST(GoldenRun, EveryPartOfTheRuleShows) {
  const Scenario scenario = mlp_scenario(3, 2);
  std::vector<ReplayRule> rules(6);
  rules[1].layout = "registration";
  rules[2].layout = "one_bucket";
  rules[3].division_first_step = "divide_before";
  rules[4].division_later = "divide_after";
  rules[5].algorithm = "rank_order";
  std::set<std::vector<std::byte>> results;
  for (const ReplayRule& rule : rules)
    results.insert(items_of(scenario, GoldenKind::replay, rule).back());
  EXPECT_EQ(results.size(), rules.size());
}

TEST(GoldenRun, SmallCapsChangeTheLayoutFromTheSecondStep) {
  const Scenario scenario = mlp_scenario(3, 2);
  ReplayRule small;
  small.first_bucket_bytes = 500;
  small.bucket_cap_bytes = 2000;
  ReplayRule fixed = small;
  fixed.rebuild = false;
  const auto large = items_of(scenario, GoldenKind::replay);
  const auto rebuilt = items_of(scenario, GoldenKind::replay, small);
  const auto from_start = items_of(scenario, GoldenKind::replay, fixed);
  EXPECT_EQ(large[1], rebuilt[1]);
  EXPECT_NE(large[2], rebuilt[2]);
  EXPECT_NE(large[1], from_start[1]);
}

// The maths of sharding: W shards in double against the whole batch.
TEST(GoldenRun, ShardsInDoubleAreNearTheWholeBatch) {
  struct OneLoss {
    Part loss;
    bool near;
  };
  const OneLoss cases[] = {{mse(), true},
                           {mse("sum", 1, true), true},
                           {mse("sum"), false},             // the mean of sums is not the sum (B03)
                           {mse("mean", 1, true), false}};  // nor W times the mean the mean (B02)
  for (const OneLoss& c : cases) {
    Scenario scenario = mlp_scenario(3, 5);
    scenario.optimizer = sgd(1e-4, 0.9);
    scenario.dtype = "float64";
    scenario.loss = c.loss;
    const auto run = items_of(scenario, GoldenKind::replay);
    const auto golden = items_of(scenario, GoldenKind::float64);
    const Distance distance =
        worst_distance(layout_of(scenario), run.back().data(), golden.back().data());
    EXPECT_EQ(distance.worst < 1e-14, c.near) << distance.worst;
    EXPECT_EQ(distance.worst > 1e-6, !c.near) << distance.worst;
  }
}

// Data that does not round: bit for bit the same for any order; random data is the control.
TEST(GoldenRun, DyadicDataIsExactForAnyOrder) {
  for (int64_t world_size : {2, 3, 5, 7}) {
    Scenario scenario = scenario_of(world_size, 6, mlp({6, 5, 3}), dyadic(210, 6, 3));
    scenario.dtype = "float64";
    scenario.requantize = 64;
    scenario.loss = mse("sum", 1.0 / 1024, true);
    scenario.optimizer = sgd(1.0 / 1024);
    const auto golden = items_of(scenario, GoldenKind::exact);
    for (const char* algorithm : {"ring", "halving_doubling"}) {
      ReplayRule rule;
      rule.algorithm = algorithm;
      const auto run = items_of(scenario, GoldenKind::replay, rule);
      EXPECT_EQ(run, golden) << algorithm << " W=" << world_size;
    }
    EXPECT_NE(golden[0], golden[6]);
    scenario.data.kind = "randn";
    EXPECT_NE(items_of(scenario, GoldenKind::replay)[1], items_of(scenario, GoldenKind::exact)[1]);
  }
}

TEST(GoldenRun, ADoubleRunStartsFromTheSameWeights) {
  const Scenario scenario = linear_manual_split();
  const auto narrow = items_of(scenario, GoldenKind::one_device);
  const auto wide = items_of(scenario, GoldenKind::float64);
  const StateLayout layout64 = layout_of(scenario, GoldenKind::float64);
  const auto a = values_of<float>(layout_of(scenario), StateKind::parameter, "weight", narrow[0]);
  const auto b = values_of<double>(layout64, StateKind::parameter, "weight", wide[0]);
  ASSERT_EQ(a.size(), 100u);
  EXPECT_EQ(std::vector<double>(a.begin(), a.end()), b);
  const auto c = values_of<float>(layout_of(scenario), StateKind::parameter, "weight", narrow[1]);
  const auto d = values_of<double>(layout64, StateKind::parameter, "weight", wide[1]);
  for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(c[i], d[i], 1e-7);
}

TEST(GoldenRun, ReturnsToTheFirstBatch) {
  Scenario scenario = mlp_scenario(2, 4);
  scenario.batch_size = 84;
  scenario.optimizer = sgd(0.0);  // weights stay, so equal batches give equal gradients
  ReplayRule rule;
  rule.layout = "one_bucket";
  const auto items = items_of(scenario, GoldenKind::replay, rule);
  EXPECT_EQ(items[1], items[3]);
  EXPECT_EQ(items[2], items[4]);
  EXPECT_NE(items[1], items[2]);
}

TEST(GoldenRun, EndsWhenNobodyReads) {
  Scenario scenario = mlp_scenario(2, 1'000'000);
  const int64_t bytes = golden_item(scenario, GoldenKind::replay, false).bytes;
  auto stream = StateStream::in_memory({.slot_bytes = bytes, .slots = 2});
  stream->leave(0);
  run_golden(scenario, GoldenKind::replay, {}, false, *stream, kNoDeadline);
  auto stuck = StateStream::in_memory({.slot_bytes = bytes, .slots = 2});
  EXPECT_THROW(run_golden(scenario, GoldenKind::replay, {}, false, *stuck,
                          deadline_after(std::chrono::milliseconds(20))),
               std::runtime_error);
}

}  // namespace
}  // namespace lockstep
