#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <functional>

#include "reducer/kinds/invariant.h"
#include "reducer/shard_tree.h"
#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

constexpr int64_t kTreeShards = 8;
constexpr int64_t kTreeSteps = 3;

ReducerOptions tree_options(int64_t cap_bytes = 300) {
  ReducerOptions options;
  options.kind = "invariant";
  options.virtual_shards = kTreeShards;
  options.first_bucket_bytes = 100;
  options.bucket_cap_bytes = cap_bytes;
  return options;
}

using Tensors = std::vector<at::Tensor>;

// Which shards leave the middle layer out.
using LeavesOut = std::function<bool(int64_t step, int64_t shard)>;

bool leaves_out_none(int64_t, int64_t) { return false; }

// A forward that counts, as running statistics do, and of which the result depends on what it
// finds.
at::Tensor loss_on_tree(const SmallModel& model, Reducer& reducer, int64_t shard, bool last,
                        int64_t step, const LeavesOut& leaves_out) {
  reducer.before_forward(last);
  const at::Tensor found = model.buffers[0].tensor[0].clone();
  at::Tensor loss = shard_loss(model, shard, step, !leaves_out(step, shard)) * (found + 1);
  {
    const c10::NoGradGuard no_grad;
    at::Tensor(model.buffers[0].tensor).mul_(0.5).add_(loss.detach());
  }
  reducer.after_forward();
  return loss;
}

// A step of one rank, from the weights that all have.
void train_on_tree(const SmallModel& model, Reducer& reducer, ShardRange own, int64_t step,
                   const LeavesOut& leaves_out) {
  for (int64_t shard = own.begin; shard < own.end; ++shard) {
    const bool last = shard + 1 == own.end;
    const at::Tensor loss = loss_on_tree(model, reducer, shard, last, step, leaves_out);
    if (last) reducer.before_backward({loss});
    loss.backward();
  }
  reducer.after_backward();
}

// All forwards come before the first backward, of which each is cut in two: where one is, the
// gradients of fc3 are there, those of the layers below are not.
void train_in_turns(const SmallModel& model, Reducer& reducer, ShardRange own, int64_t step,
                    const LeavesOut& leaves_out) {
  Tensors losses;
  for (int64_t shard = own.begin; shard < own.end; ++shard) {
    reducer.enter_shard(shard - own.begin);
    losses.push_back(loss_on_tree(model, reducer, shard, shard + 1 == own.end, step, leaves_out));
  }
  const auto backward = [&](size_t first, size_t count) {
    for (size_t turn = 0; turn < losses.size(); ++turn) {
      reducer.enter_shard(static_cast<int64_t>(turn));
      if (first > 0 && turn + 1 == losses.size()) reducer.before_backward({losses[turn]});
      std::vector<at::Tensor> inputs;
      for (size_t i = first; i < first + count; ++i) inputs.push_back(model.p(i));
      torch::autograd::backward({losses[turn]}, {}, /*retain_graph=*/true, false, inputs);
    }
  };
  backward(4, 2);
  backward(0, 4);
  reducer.after_backward();
}

// Rank 0's gradients of the last step, weights and buffers.
Tensors trained_on_tree(const Backend& kind, int64_t ranks, const ReducerOptions& options,
                        const LeavesOut& leaves_out = leaves_out_none) {
  Tensors state;
  run_ranks(kind, ranks, [&](int64_t rank, Communicator& communicator) {
    const SmallModel model(rank == 0 ? 0 : 100);
    TestProbe probe;
    const auto reducer =
        make_reducer(options, model.parameters, model.buffers, communicator, probe);
    for (int64_t step = 1; step <= kTreeSteps; ++step) {
      model.clear_gradients(step % 2 == 0);
      const auto train = options.shards_together ? train_in_turns : train_on_tree;
      train(model, *reducer, shards_of_rank(options.virtual_shards, ranks, rank), step, leaves_out);
      model.descend(0.1);
    }
    if (rank != 0) return;
    state = model.gradients();
    for (const NamedTensor& one : model.parameters) state.push_back(one.tensor.detach().clone());
    for (const NamedTensor& one : model.buffers) state.push_back(one.tensor.clone());
  });
  return state;
}

bool tree_bits_equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (!a[i].defined()) continue;
    const at::Tensor one = a[i].contiguous(), other = b[i].contiguous();
    if (one.nbytes() != other.nbytes() ||
        std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) != 0)
      return false;
  }
  return true;
}

TEST(Invariant, AnyNumberOfRanksAndAnyBucketsHaveTheSameBits) {
  const Tensors expected = trained_on_tree({"local", "ring"}, 1, tree_options());
  ASSERT_TRUE(expected.front().defined());
  for (const int64_t ranks : {2, 3, 4, 5, 6, 7, 8})
    EXPECT_TRUE(
        tree_bits_equal(expected, trained_on_tree({"local", "ring"}, ranks, tree_options())))
        << ranks;
  for (const int64_t cap : {1, 1000, 1 << 20})
    EXPECT_TRUE(tree_bits_equal(expected, trained_on_tree({"local", "ring"}, 3, tree_options(cap))))
        << cap;
}

// Two ranks with a root each add in an all-reduce, others exchange.
TEST(Invariant, TwoRanksWithOneRootOrMoreHaveTheBitsOfOne) {
  for (const int64_t shards : {2, 3, 4, 5, 6, 7, 8}) {
    ReducerOptions options = tree_options();
    options.virtual_shards = shards;
    const Tensors expected = trained_on_tree({"local", "ring"}, 1, options);
    for (const char* kind : {"local", "gloo", "shm"})
      EXPECT_TRUE(tree_bits_equal(expected, trained_on_tree({kind, "ring"}, 2, options)))
          << shards << " over " << kind;
  }
}

TEST(Invariant, OverSocketsAndSharedMemoryAsWell) {
  const Tensors expected = trained_on_tree({"local", "ring"}, 1, tree_options());
  for (const char* kind : {"gloo", "shm"})
    for (const int64_t ranks : {2, 3})
      EXPECT_TRUE(tree_bits_equal(expected, trained_on_tree({kind, "ring"}, ranks, tree_options())))
          << kind << " " << ranks;
}

TEST(Invariant, UnusedParametersOfSomeShardsAddNothing) {
  ReducerOptions options = tree_options();
  options.find_unused_parameters = true;
  const LeavesOut some = [](int64_t step, int64_t shard) { return shard % 3 == 0 || step == 2; };
  const Tensors expected = trained_on_tree({"local", "ring"}, 1, options, some);
  for (const int64_t ranks : {2, 3, 5, 8})
    EXPECT_TRUE(tree_bits_equal(expected, trained_on_tree({"local", "ring"}, ranks, options, some)))
        << ranks;
}

// Each has gradients, buffers and unused parameters of its own.
TEST(Invariant, ShardsThatTakeTurnsHaveTheBitsOfShardsOneAfterTheOther) {
  const LeavesOut some = [](int64_t step, int64_t shard) { return shard % 3 == 0 || step == 2; };
  for (const bool unused : {false, true}) {
    ReducerOptions options = tree_options();
    options.find_unused_parameters = unused;
    const LeavesOut& leaves_out = unused ? some : leaves_out_none;
    const Tensors expected = trained_on_tree({"local", "ring"}, 1, options, leaves_out);
    options.shards_together = true;
    for (const int64_t ranks : {1, 2, 3, 5, 8})
      EXPECT_TRUE(
          tree_bits_equal(expected, trained_on_tree({"local", "ring"}, ranks, options, leaves_out)))
          << ranks << unused;
  }
}

TEST(Invariant, WhatNoShardUsesKeepsWhatItHad) {
  ReducerOptions options = tree_options();
  options.find_unused_parameters = true;
  const LeavesOut all = [](int64_t, int64_t) { return true; };
  const Tensors state = trained_on_tree({"local", "ring"}, 3, options, all);
  EXPECT_TRUE(state[0].defined());
  EXPECT_FALSE(state[2].defined());
}

TEST(Invariant, AShardWithoutAGradientIsNamedUnlessSomebodyLooks) {
  const LeavesOut one = [](int64_t, int64_t shard) { return shard == 1; };
  run_ranks({"local", "ring"}, 1, [&](int64_t, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    const auto reducer =
        make_reducer(tree_options(), model.parameters, model.buffers, communicator, probe);
    try {
      train_on_tree(model, *reducer, {0, kTreeShards}, 1, one);
      ADD_FAILURE() << "fc2 has no gradient in shard 1";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("fc2.weight"), std::string::npos) << error.what();
    }
  });
}

TEST(Invariant, TheLastShardAloneIsSynchronized) {
  run_ranks({"local", "ring"}, 1, [&](int64_t, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    const auto reducer =
        make_reducer(tree_options(), model.parameters, model.buffers, communicator, probe);
    EXPECT_THROW(reducer->before_forward(true), std::runtime_error);
  });
}

// Of rank 0's first step, but for buffers; in the order of the calls.
std::vector<Operation> operations_of_a_step(int64_t ranks) {
  std::vector<Operation> operations;
  run_ranks({"local", "ring"}, ranks, [&](int64_t rank, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    const auto recording = make_recording(communicator, probe);
    const auto reducer =
        make_reducer(tree_options(), model.parameters, model.buffers, *recording, probe);
    const size_t before = probe.arrivals.size();
    train_on_tree(model, *reducer, shards_of_rank(kTreeShards, ranks, rank), 1, leaves_out_none);
    EXPECT_GT(reducer->layout().size(), 2U);
    EXPECT_EQ(probe.buckets.size(), reducer->layout().size());
    if (rank != 0) return;
    for (size_t i = before + 1; i < probe.arrivals.size(); ++i)
      operations.push_back(probe.arrivals[i].operation);
  });
  return operations;
}

// Buckets leave while backward goes on: in index order, each as soon as it is full; after it their
// parts are gathered.
TEST(Invariant, BucketsLeaveDuringTheLastShardsBackward) {
  const std::vector<Operation> called = operations_of_a_step(3);
  ASSERT_GT(called.size(), 2U);
  std::vector<Operation> expected(called.size() / 2, Operation::all_to_all);
  expected.resize(called.size(), Operation::all_gather);
  EXPECT_EQ(called, expected);
}

TEST(Invariant, OneAdditionIsAnAllReduceForEachBucket) {
  const std::vector<Operation> called = operations_of_a_step(2);
  EXPECT_GT(called.size(), 2U);
  EXPECT_EQ(called, std::vector<Operation>(called.size(), Operation::all_reduce));
}

}  // namespace
}  // namespace lockstep
