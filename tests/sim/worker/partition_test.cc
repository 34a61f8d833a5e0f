#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "reducer/kinds/sharded.h"
#include "sim/worker/partition.h"
#include "tests/golden/torch/scenarios.h"
#include "tests/reducer/test_group.h"
#include "tests/scenarios/workloads/expect_same.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kTimeout{20};

NamedTensors weights(const std::string& memory_format = "contiguous") {
  const RandomSection random(7);
  Part model = linear(5, 3);
  model.options.set("memory_format", memory_format);
  return build_model(model, "float32")->parameters();
}

// Of step `number`, the same on all ranks.
void set_gradients(const NamedTensors& parameters, int number) {
  for (const NamedTensor& p : parameters)
    p.tensor.mutable_grad() = at::empty_like(p.tensor.detach())
                                  .copy_(at::arange(p.tensor.numel(), at::kFloat)
                                             .sub(4)
                                             .mul(0.1 * number)
                                             .view(p.tensor.sizes()));
}

// Weights of 15 and 3 elements: whole, or cut into parts of 6 for three ranks.
std::vector<OptimizerShard> pieces_for(bool cut, int64_t ranks) {
  if (!cut) return zero_shards({15, 3}, ranks);
  return bucket_shards({{1, 0}}, {15, 3}, ranks).front();
}

class PiecewiseOptimizerTest : public testing::TestWithParam<std::tuple<Part, bool, int64_t>> {};

TEST_P(PiecewiseOptimizerTest, BroughtTogetherItIsTheWholeOptimizer) {
  const auto& [part, cut, ranks] = GetParam();
  const NamedTensors whole_weights = weights();
  const auto whole = build_optimizer(part, whole_weights);
  std::vector<int64_t> bytes(static_cast<size_t>(ranks));
  std::vector<NamedTensors> states(bytes.size()), trained(bytes.size());
  run_ranks({"local", "ring"}, ranks, [&](int64_t rank, Communicator& group) {
    const NamedTensors own = weights();
    const std::vector<OptimizerShard> pieces = pieces_for(cut, ranks);
    const auto spread = [&] { broadcast_shards(pieces, tensors_of(own), false, group, soon()); };
    PiecewiseOptimizer optimizer(part, own, pieces, spread, group, kTimeout);
    optimizer.consolidate();  // before the first step too
    for (int number = 1; number <= 3; ++number) {
      set_gradients(own, number);
      optimizer.step();
    }
    optimizer.consolidate();
    const auto place = static_cast<size_t>(rank);
    bytes[place] = optimizer.own_bytes();
    states[place] = optimizer.state();
    trained[place] = own;
  });
  for (int number = 1; number <= 3; ++number) {
    set_gradients(whole_weights, number);
    whole->step();
  }
  int64_t all = 0;
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    expect_same(trained[rank], whole_weights);
    expect_same(states[rank], whole->state());
    all += bytes[rank];
  }
  if (!cut) {
    EXPECT_EQ(all, state_bytes(*whole));
  }
}

TEST(PiecewiseOptimizer, LoadTakesItsOwnPieces) {
  const NamedTensors whole_weights = weights();
  const auto whole = build_optimizer(adam(), whole_weights);
  set_gradients(whole_weights, 1);
  whole->step();
  run_ranks({"local", "ring"}, 3, [&](int64_t, Communicator& group) {
    const NamedTensors own = weights();
    const std::vector<OptimizerShard> pieces = pieces_for(true, 3);
    PiecewiseOptimizer optimizer(
        adam(), own, pieces, [] {}, group, kTimeout);
    optimizer.load(whole->state());
    optimizer.consolidate();
    expect_same(optimizer.state(), whole->state());
  });
}

// Pieces are runs of memory: state from a file, which is contiguous, is laid out like the weights.
TEST(PiecewiseOptimizer, TransposedWeightsAreUpdatedLikeOthers) {
  for (const bool cut : {false, true}) {
    const NamedTensors whole_weights = weights();
    const auto whole = build_optimizer(adam(), whole_weights);
    set_gradients(whole_weights, 1);
    whole->step();
    const NamedTensors before = whole->state();
    std::vector<NamedTensors> trained(3), states(3);
    run_ranks({"local", "ring"}, 3, [&](int64_t rank, Communicator& group) {
      const NamedTensors own = weights("transposed");
      const auto spread = [&] {
        broadcast_shards(pieces_for(cut, 3), tensors_of(own), true, group, soon());
      };
      PiecewiseOptimizer optimizer(adam(), own, pieces_for(cut, 3), spread, group, kTimeout);
      set_gradients(own, 1);
      optimizer.step();
      optimizer.load(before);
      set_gradients(own, 2);
      optimizer.step();
      optimizer.consolidate();
      trained[static_cast<size_t>(rank)] = own;
      states[static_cast<size_t>(rank)] = optimizer.state();
    });
    set_gradients(whole_weights, 2);
    whole->step();
    for (size_t rank = 0; rank < trained.size(); ++rank) {
      expect_same(trained[rank], whole_weights);
      expect_same(states[rank], whole->state());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PiecewiseOptimizerTest,
                         testing::Combine(testing::Values(adam(true), sgd(0.1, 0.9), sgd(0.1)),
                                          testing::Bool(), testing::Values(1, 3, 4)));

}  // namespace

}  // namespace lockstep
