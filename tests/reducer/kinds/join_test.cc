// Ranks that run out of batches shadow the others (Reducer::shadow()).
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "reducer/reducer.h"
#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kSteps = 4;
// Rank 0 runs out first, ranks 1 and 3 last.
constexpr std::array<int64_t, kRanks> kBatches = {1, 4, 2, 4};

using Tensors = std::vector<at::Tensor>;

struct RankRun {
  std::vector<Tensors> gradients;         // after each of its steps
  std::optional<Tensors> left_gradients;  // just before the end, of a rank that has run out
  Tensors final;                          // parameters, then the buffer
};

void train_step(const SmallModel& model, Reducer& reducer, int64_t rank, int64_t step) {
  model.clear_gradients(true);
  reducer.before_forward(false);  // a micro-batch that is not synchronized
  shard_loss(model, rank, step + 10).backward();
  reducer.before_forward(true);
  const at::Tensor loss = shard_loss(model, rank, step);
  reducer.before_backward({loss});
  loss.backward();
  reducer.after_backward();
}

RankRun run_rank(const ReducerOptions& options, int64_t rank, Communicator& communicator) {
  const SmallModel model(static_cast<uint64_t>(rank) * 77);
  TestProbe probe;
  const auto reducer = make_reducer(options, model.parameters, model.buffers, communicator, probe);
  RankRun run;
  for (int64_t step = 1; step <= kSteps; ++step) {
    if (step > kBatches[static_cast<size_t>(rank)]) {
      EXPECT_TRUE(reducer->shadow());
      EXPECT_TRUE(reducer->shadow());
      continue;
    }
    train_step(model, *reducer, rank, step);
    run.gradients.push_back(model.gradients());
    model.descend(0.05);
    at::Tensor(model.buffers[0].tensor).add_(static_cast<double>(rank + 1));
  }
  if (kBatches[static_cast<size_t>(rank)] < kSteps) run.left_gradients = model.gradients();
  EXPECT_FALSE(reducer->shadow());
  for (const NamedTensor& parameter : model.parameters)
    run.final.push_back(parameter.tensor.detach());
  run.final.push_back(model.buffers[0].tensor);
  return run;
}

std::vector<RankRun> run_all(const std::string& kind, const std::string& join, bool view,
                             const CommHookOptions& hook = {}) {
  ReducerOptions options;
  options.kind = kind;
  options.first_bucket_bytes = 100;
  options.bucket_cap_bytes = 300;
  options.gradient_as_bucket_view = view;
  options.join = join;
  options.comm_hook = hook;
  options.collective_timeout = std::chrono::seconds(20);
  std::vector<RankRun> runs(kRanks);
  run_ranks({"local", "ring"}, kRanks, [&](int64_t rank, Communicator& communicator) {
    runs[static_cast<size_t>(rank)] = run_rank(options, rank, communicator);
  });
  return runs;
}

void expect_equal(const Tensors& a, const Tensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << what << " " << i;
}

// Of step 1 in double, over ranks [0, kRanks): the model is rank 0's.
Tensors sum_of_first_step() {
  Tensors sums;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const SmallModel model(0);
    shard_loss(model, rank, 11).backward();
    shard_loss(model, rank, 1).backward();
    const Tensors gradients = model.gradients();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (rank == 0) sums.push_back(at::zeros_like(gradients[i], at::kDouble));
      sums[i].add_(gradients[i].to(at::kDouble));
    }
  }
  return sums;
}

class Joined : public testing::TestWithParam<std::string> {};

TEST_P(Joined, ActiveRanksAgreeAndAllEndWithTheirWeights) {
  for (const bool view : {false, true}) {
    const auto runs = run_all(GetParam(), "active_ranks", view);
    for (size_t step = 0; step < 4; ++step)
      expect_equal(runs[1].gradients[step], runs[3].gradients[step], "gradient");
    expect_equal(runs[0].gradients[0], runs[1].gradients[0], "gradient");
    for (const RankRun& run : runs) expect_equal(run.final, runs[3].final, "final");
    for (size_t rank : {0, 2})
      expect_equal(*runs[rank].left_gradients, runs[rank].gradients.back(), "kept gradient");
    const Tensors sums = sum_of_first_step();
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_TRUE(at::allclose(runs[0].gradients[0][i].to(at::kDouble), sums[i] / 4.0, 1e-5, 1e-6));
  }
}

// Step 2 is the first with other divisors, from the same weights: rank 0 has left.
TEST_P(Joined, DivisorsDifferByTheRanksThatLeft) {
  const auto active = run_all(GetParam(), "active_ranks", false);
  const auto all = run_all(GetParam(), "initial_world_size", false);
  expect_equal(active[1].gradients[0], all[1].gradients[0], "gradient of step 1");
  const Tensors& by_three = active[1].gradients[1];
  const Tensors& by_four = all[1].gradients[1];
  for (size_t i = 0; i < by_three.size(); ++i) {
    EXPECT_TRUE(at::allclose(by_three[i] * 0.75, by_four[i], 1e-5, 1e-7)) << i;
    EXPECT_FALSE(by_three[i].equal(by_four[i])) << i;
  }
}

// From step 3 on ranks send two narrow matrices each, one after the other, those that have run out
// too.
TEST_P(Joined, HooksOfRanksThatHaveRunOutCountStepsAndEnd) {
  CommHookOptions hook;
  hook.kind = "powersgd";
  hook.start_step = 3;
  const auto runs = run_all(GetParam(), "initial_world_size", true, hook);
  for (size_t step = 0; step < 4; ++step)
    expect_equal(runs[1].gradients[step], runs[3].gradients[step], "gradient");
  for (const RankRun& run : runs) expect_equal(run.final, runs[3].final, "final");
}

// Rank 0 says that it will synchronize, and goes.
TEST(Join, AShadowedStepThatFailsIsAnErrorWithACommHookToo) {
  for (const char* hook : {"none", "allreduce", "fp16"}) {
    ReducerOptions options;
    options.kind = "bucketed";
    options.join = "initial_world_size";
    options.comm_hook.kind = hook;
    options.collective_timeout = std::chrono::milliseconds(500);
    run_ranks({"local", "ring"}, 2, [&](int64_t rank, Communicator& communicator) {
      const SmallModel model(0);
      TestProbe probe;
      const auto reducer =
          make_reducer(options, model.parameters, model.buffers, communicator, probe);
      if (rank == 0) return reducer->before_forward(true);
      EXPECT_THROW(reducer->shadow(), CommError) << hook;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Joined, testing::Values("bucketed", "c10d"),
                         [](const auto& kind) { return kind.param; });

TEST(Join, BucketedAndC10dGiveTheSameBits) {
  for (const bool view : {false, true})
    for (const char* join : {"active_ranks", "initial_world_size"}) {
      const auto ours = run_all("bucketed", join, view);
      const auto theirs = run_all("c10d", join, view);
      for (size_t rank = 0; rank < kRanks; ++rank) {
        for (size_t step = 0; step < ours[rank].gradients.size(); ++step)
          expect_equal(ours[rank].gradients[step], theirs[rank].gradients[step], "gradient");
        expect_equal(ours[rank].final, theirs[rank].final, "final");
      }
    }
}

}  // namespace
}  // namespace lockstep
