#include "reducer/comm_hook.h"

#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

using Gradients = std::vector<at::Tensor>;

// Gathers and adds up on each rank: collectives other than all_reduce work as well.
class GatherAndAdd : public CommHook {
 public:
  Finish start(const HookBucket& bucket, HookGroup& group) override {
    const at::Tensor own = bucket.gradients;
    const at::Tensor all = at::empty({group.world_size(), own.numel()}, own.options());
    const CommWorkPtr work = group.all_gather(all, own);
    return [work, all] {
      work->wait();
      return all.mean(0);
    };
  }
};
LOCKSTEP_REGISTER_COMM_HOOK("gather_and_add", GatherAndAdd);

// What a single rank's hook was told of each bucket.
std::vector<HookBucket> noted;
class Notes : public CommHook {
 public:
  Finish start(const HookBucket& bucket, HookGroup&) override {
    noted.push_back(bucket);
    return [gradients = bucket.gradients] { return gradients; };
  }
};
LOCKSTEP_REGISTER_COMM_HOOK("notes", Notes);

CommHookOptions hook_of(const std::string& kind, const std::string& name = "") {
  CommHookOptions options;
  options.kind = kind;
  options.name = name;
  return options;
}

CommHookOptions power_sgd(int64_t rank, int64_t start_step = 2) {
  CommHookOptions options = hook_of("powersgd");
  options.rank = rank;
  options.start_step = start_step;
  options.seed = 5;
  return options;
}

ReducerOptions hook_options_of(const std::string& kind, const CommHookOptions& hook) {
  ReducerOptions options;
  options.kind = kind;
  options.first_bucket_bytes = 100;
  options.bucket_cap_bytes = 300;
  options.comm_hook = hook;
  return options;
}

// Not equal(): that is false of what is not a number.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Gradients of every step, on rank 0; all ranks must have the same. scale: of the loss.
std::vector<Gradients> train_with_hook(const ReducerOptions& options, double scale = 1,
                                       const Backend& backend = {"local", "ring"},
                                       int64_t steps = 5) {
  std::vector<std::vector<Gradients>> by_rank(3);
  run_ranks(backend, 3, [&](int64_t rank, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    const auto reducer =
        make_reducer(options, model.parameters, model.buffers, communicator, probe);
    for (int64_t step = 1; step <= steps; ++step) {
      model.clear_gradients(true);
      reducer->before_forward(true);
      const at::Tensor loss = shard_loss(model, rank, step) * scale;
      reducer->before_backward({loss});
      loss.backward();
      reducer->after_backward();
      by_rank[static_cast<size_t>(rank)].push_back(model.gradients());
      EXPECT_EQ(probe.buckets.size(), reducer->layout().size());
      probe.buckets.clear();
      model.descend(0.05 / scale);
    }
  });
  for (size_t rank : {1, 2})
    for (size_t step = 0; step < by_rank[0].size(); ++step)
      for (size_t i = 0; i < by_rank[0][step].size(); ++i)
        EXPECT_TRUE(same_bytes(by_rank[rank][step][i], by_rank[0][step][i])) << rank << step << i;
  return by_rank[0];
}

bool close(const std::vector<Gradients>& a, const std::vector<Gradients>& b, double tolerance) {
  bool all = true;
  for (size_t step = 0; step < a.size(); ++step)
    for (size_t i = 0; i < a[step].size(); ++i)
      all = all && at::allclose(a[step][i], b[step][i], tolerance, tolerance);
  return all;
}

bool same(const std::vector<Gradients>& a, const std::vector<Gradients>& b) {
  bool all = true;
  for (size_t step = 0; step < a.size(); ++step)
    for (size_t i = 0; i < a[step].size(); ++i) all = all && a[step][i].equal(b[step][i]);
  return all;
}

class CommHooks : public testing::TestWithParam<std::string> {
 protected:
  std::vector<Gradients> with(const CommHookOptions& hook) const {
    return train_with_hook(hook_options_of(GetParam(), hook));
  }
};

TEST_P(CommHooks, AverageGradients) {
  const auto plain = with({});
  EXPECT_TRUE(close(plain, with(hook_of("allreduce")), 1e-6));
  EXPECT_TRUE(close(plain, with(hook_of("registered", "gather_and_add")), 1e-6));
  const auto half = with(hook_of("fp16"));
  EXPECT_TRUE(close(plain, half, 1e-2));
  EXPECT_FALSE(close(plain, half, 1e-6));
  const auto brain = with(hook_of("bf16"));
  EXPECT_TRUE(close(plain, brain, 5e-2));
  EXPECT_FALSE(close(half, brain, 1e-5));
}

TEST_P(CommHooks, HalfPrecisionOverflows) {
  const auto largest = [&](const CommHookOptions& hook, double scale) {
    const auto run =
        train_with_hook(hook_options_of(GetParam(), hook), scale, {"local", "ring"}, 1);
    return run[0][4].abs().max().item<double>();
  };
  const double scale = 1e6 / largest({}, 1);
  EXPECT_FALSE(std::isfinite(largest(hook_of("fp16"), scale)));
  EXPECT_NEAR(largest(hook_of("bf16"), scale), 1e6, 2e4);
}

TEST_P(CommHooks, KnowTheStepAndTheLastBucket) {
  noted.clear();
  const auto options = hook_options_of(GetParam(), hook_of("registered", "notes"));
  run_ranks({"local", "ring"}, 1, [&](int64_t, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    const auto reducer = make_reducer(options, model.parameters, {}, communicator, probe);
    for (int64_t step = 1; step <= 3; ++step) {
      const size_t first = noted.size();
      reducer->before_forward(true);
      const at::Tensor loss = shard_loss(model, 0, step);
      reducer->before_backward({loss});
      loss.backward();
      reducer->after_backward();
      ASSERT_EQ(noted.size() - first, reducer->layout().size());
      for (size_t i = first; i < noted.size(); ++i) {
        EXPECT_EQ(noted[i].step, step);
        EXPECT_EQ(noted[i].index, static_cast<int64_t>(i - first));
        EXPECT_EQ(noted[i].is_last, i + 1 == noted.size()) << step << " " << i;
      }
    }
  });
}

TEST_P(CommHooks, PowerSgdIsTheAverageUntilItStarts) {
  EXPECT_TRUE(same(with(power_sgd(1, 6)), with(hook_of("allreduce"))));
}

TEST_P(CommHooks, PowerSgdLosesWhatItsRankCannotHold) {
  const auto plain = with(hook_of("allreduce"));
  const auto narrow = with(power_sgd(1));
  EXPECT_TRUE(narrow[0][2].equal(plain[0][2]));
  EXPECT_FALSE(at::allclose(narrow[1][2], plain[1][2], 1e-2, 1e-4));
  // A matrix of one row or column, and a bias, do not become smaller: they travel whole.
  EXPECT_TRUE(at::allclose(narrow[1][3], plain[1][3], 1e-6, 1e-7));
  const auto again = with(power_sgd(1));
  EXPECT_TRUE(same(narrow, again));
}

// What it keeps from the first step is of buckets that are gone in the second. Biases travel whole.
TEST_P(CommHooks, PowerSgdBeginsAnewWithNewBuckets) {
  const auto run = with(power_sgd(1, 1));
  const SmallModel model(0);
  for (size_t i = 0; i < run[0].size(); ++i)
    at::Tensor(model.p(i)).mutable_grad() = run[0][i].clone();
  model.descend(0.05);
  model.clear_gradients(true);
  for (int64_t rank = 0; rank < 3; ++rank) (shard_loss(model, rank, 2) / 3.0).backward();
  for (const size_t bias : {1, 3, 5})
    EXPECT_TRUE(at::allclose(run[1][bias], model.gradients()[bias], 1e-5, 1e-6)) << bias;
}

// What one step loses comes with the next ones: over many steps of the same gradient nothing is
// missing.
TEST(PowerSgd, ErrorFeedbackSendsTheRestLater) {
  run_ranks({"local", "ring"}, 3, [](int64_t rank, Communicator& communicator) {
    const at::Tensor weight = random_tensor({8, 6}, 1).requires_grad_(true);
    const at::Tensor gradient = random_tensor({8, 6}, 10 + static_cast<uint64_t>(rank));
    TestProbe probe;
    const auto reducer = make_reducer(hook_options_of("bucketed", power_sgd(1)), {{"w", weight}},
                                      {}, communicator, probe);
    at::Tensor sent = at::zeros({8, 6}), average = at::zeros({8, 6});
    for (int64_t r = 0; r < 3; ++r)
      average.add_(random_tensor({8, 6}, 10 + static_cast<uint64_t>(r)) / 3.0);
    const int64_t steps = 61;
    for (int64_t step = 1; step <= steps; ++step) {
      weight.mutable_grad() = at::Tensor();
      reducer->before_forward(true);
      const at::Tensor loss = (weight * gradient).sum();
      reducer->before_backward({loss});
      loss.backward();
      reducer->after_backward();
      if (step > 1) sent.add_(weight.grad());
    }
    const at::Tensor mean = sent / static_cast<double>(steps - 1);
    EXPECT_LT((mean - average).norm().item<double>(), 0.15 * average.norm().item<double>());
    EXPECT_GT((weight.grad() - average).norm().item<double>(),
              0.15 * average.norm().item<double>());
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, CommHooks, testing::Values("bucketed", "c10d"),
                         [](const auto& kind) { return kind.param; });

TEST(CommHooks, OursAndLibTorchsReducerGiveTheSameBits) {
  for (const CommHookOptions& hook : {hook_of("allreduce"), hook_of("fp16"), power_sgd(2)})
    EXPECT_TRUE(same(train_with_hook(hook_options_of("bucketed", hook)),
                     train_with_hook(hook_options_of("c10d", hook))))
        << hook.kind;
}

TEST(CommHooks, BrainFloatOverGloo) {
  const auto options = hook_options_of("bucketed", hook_of("bf16"));
  for (const char* algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"})
    EXPECT_TRUE(same(train_with_hook(options, 1, {"local", algorithm}),
                     train_with_hook(options, 1, {"gloo", algorithm})))
        << algorithm;
}

TEST(CommHooks, ANameThatNobodyRegisteredIsAnError) {
  try {
    make_comm_hook(hook_of("registered", "mine"));
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(
        error.what(),
        "no comm hook \"mine\" is registered in this worker; there are: gather_and_add notes");
  }
  EXPECT_DEATH(register_comm_hook("gather_and_add", {}), "is registered already");
}

}  // namespace
}  // namespace lockstep
