#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include "sim/fault/training_mutants.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

// Rank 1 of a scenario with one mutant, and a model y = a x + b of two parameters of one shape.
class StepMutantsTest : public testing::Test {
 protected:
  StepMutantsTest()
      : path_(testing::TempDir() + "/step_mutants." + std::to_string(::getpid())),
        recorder_(Recorder::create(path_, 1, 3, 64)) {
    for (const char* name : {"a", "b"})
      training_.parameters.push_back({name, at::ones({2}).set_requires_grad(true)});
    training_.buffers = {{"mean", at::zeros({2})}, {"count", at::zeros({1}, at::kLong)}};
    scenario_.accumulate_steps = 4;
  }
  ~StepMutantsTest() override { ::unlink(path_.c_str()); }

  StepMutants with(const std::string& kind, std::optional<std::string> tensor = {},
                   std::optional<int64_t> rank = {}) {
    MutantSpec mutant;
    mutant.kind = kind;
    mutant.tensor = std::move(tensor);
    mutant.rank = rank;
    scenario_.mutants = {mutant};
    return {scenario_, 1, *recorder_};
  }
  const at::Tensor& a() { return training_.parameters[0].tensor; }
  const at::Tensor& b() { return training_.parameters[1].tensor; }
  at::Tensor loss() { return (a() * 2 + b() * 3).sum(); }
  static const void* accumulator_of(const at::Tensor& parameter) {
    return torch::autograd::impl::grad_accumulator(parameter).get();
  }

  const std::string path_;
  std::unique_ptr<Recorder> recorder_;
  Scenario scenario_;
  Training training_;
};

TEST_F(StepMutantsTest, WithoutOneTheStepIsAsItWas) {
  StepMutants none = with("none");
  EXPECT_FALSE(none.bypasses() || none.forwards_twice() || none.skips_finalize());
  EXPECT_EQ(none.share_factor(), 1);
  EXPECT_TRUE(none.known_parameters(training_.parameters)[0].tensor.is_same(a()));
  none.before_construction(training_);
  none.after_construction(training_);
  const at::Tensor once = loss();
  none.backward(once, training_);
  none.after_micro_batch(training_);
  none.after_reduction(once, training_);
  EXPECT_EQ(a().grad()[0].item<float>(), 2);
}

TEST_F(StepMutantsTest, OfAnotherRankDoesNothing) {
  EXPECT_FALSE(with("bypass_reducer", {}, 2).bypasses());
  EXPECT_TRUE(with("bypass_reducer", {}, 1).bypasses());
}

TEST_F(StepMutantsTest, TheReducerGetsAnotherTensorAndItsValuesComeBack) {
  StepMutants mutants = with("replace_parameter", "b");
  const NamedTensors known = mutants.known_parameters(training_.parameters);
  EXPECT_TRUE(known[0].tensor.is_same(a()));
  EXPECT_FALSE(known[1].tensor.is_alias_of(b()));
  EXPECT_TRUE(known[1].tensor.requires_grad());
  {
    const c10::NoGradGuard no_grad;
    at::Tensor(known[1].tensor).fill_(7);  // as the broadcast at construction does
  }
  mutants.after_construction(training_);
  EXPECT_EQ(b()[0].item<float>(), 7);
}

TEST_F(StepMutantsTest, WhatMovesLosesWhatHungOnIt) {
  const auto of_a = torch::autograd::impl::grad_accumulator(a());
  const auto of_b = torch::autograd::impl::grad_accumulator(b());
  with("move_parameter", "b").after_construction(training_);
  EXPECT_EQ(accumulator_of(a()), of_a.get());
  EXPECT_NE(accumulator_of(b()), of_b.get());
  EXPECT_EQ(b().scalar_type(), at::kFloat);
  EXPECT_EQ(b()[1].item<float>(), 1);
}

TEST_F(StepMutantsTest, TiedParametersShareMemory) {
  with("tie_parameters", "b").before_construction(training_);
  EXPECT_EQ(a().data_ptr(), b().data_ptr());
}

TEST_F(StepMutantsTest, OtherBuffersDifferByRankAndCountersStay) {
  with("other_buffers").before_construction(training_);
  EXPECT_EQ(training_.buffers[0].tensor[0].item<float>(), 0.5);
  EXPECT_EQ(training_.buffers[1].tensor[0].item<int64_t>(), 0);
}

TEST_F(StepMutantsTest, GradWithoutHooksFiresNone) {
  int fired = 0;
  const auto node = torch::autograd::impl::grad_accumulator(a());
  struct Counts : torch::autograd::FunctionPostHook {
    explicit Counts(int* counter) : count(counter) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      ++*count;
      return outputs;
    }
    int* count;
  };
  node->add_post_hook(std::make_unique<Counts>(&fired));
  with("none").backward(loss(), training_);
  EXPECT_EQ(fired, 1);
  with("grad_without_hooks").backward(loss(), training_);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(a().grad()[0].item<float>(), 4);  // added all the same
}

TEST_F(StepMutantsTest, TheSecondBackwardAddsAfterTheReduction) {
  StepMutants mutants = with("second_backward");
  const at::Tensor twice = loss();
  mutants.backward(twice, training_);
  EXPECT_EQ(b().grad()[0].item<float>(), 3);
  mutants.after_reduction(twice, training_);
  EXPECT_EQ(b().grad()[0].item<float>(), 6);
}

TEST_F(StepMutantsTest, AccumulatedGradientsAreLostAndSharesNotDivided) {
  loss().backward();
  with("lose_accumulated", "a").after_micro_batch(training_);
  EXPECT_EQ(a().grad()[0].item<float>(), 0);
  EXPECT_EQ(b().grad()[0].item<float>(), 3);
  EXPECT_EQ(with("undivided_micro_batches").share_factor(), 4);
}

TEST_F(StepMutantsTest, AfterTheReduction) {
  a().mutable_grad() = at::ones({4}).narrow(0, 1, 2);
  const at::Tensor before = a().grad();
  with("clone_gradient").after_reduction({}, training_);
  EXPECT_FALSE(a().grad().is_alias_of(before));
  EXPECT_FALSE(b().grad().defined());
  with("zero_for_none").after_reduction({}, training_);
  EXPECT_EQ(b().grad()[0].item<float>(), 0);
  EXPECT_EQ(a().grad()[0].item<float>(), 1);
}

ReducerOptions options_with(const std::string& kind, std::optional<int64_t> step = {}) {
  MutantSpec mutant;
  mutant.kind = kind;
  mutant.step = step;
  mutant.tensor = "fc1";
  ReducerOptions options;
  apply_reducer_mutants({mutant}, 1, &options);
  return options;
}

class Group : public HookGroup {
 public:
  explicit Group(Communicator& inner) : inner_(inner) {}
  int64_t world_size() const override { return inner_.world_size(); }
  CommWorkPtr all_reduce(const at::Tensor& tensor) override {
    return inner_.all_reduce(tensor, soon());
  }
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return inner_.all_gather(output, input, soon());
  }

 private:
  Communicator& inner_;
};

// What three ranks with a gradient of 9 each have after the hook of that mutant.
double averaged_by(const ReducerOptions& options, int64_t step = 1) {
  double seen = 0;
  run_ranks({"local", "ring"}, 3, [&](int64_t rank, Communicator& communicator) {
    Group group(communicator);
    const at::Tensor gradients = at::full({2}, 9.0);
    const auto hook = make_comm_hook(options.comm_hook);
    const at::Tensor result =
        hook->start({.step = step, .gradients = gradients, .by_parameter = {gradients}}, group)();
    if (rank == 0) seen = result[0].item<double>();
  });
  return seen;
}

TEST(ReducerMutants, HooksDivideOnceNeverOrTwice) {
  EXPECT_EQ(averaged_by(options_with("hook_path")), 9);
  EXPECT_EQ(averaged_by(options_with("sum_undivided")), 27);
  EXPECT_EQ(averaged_by(options_with("divide_twice")), 3);
  EXPECT_EQ(options_with("cast_early").comm_hook.kind, "bf16");
}

TEST(ReducerMutants, ASkippedHookLeavesTheRanksOwnFromItsStepOn) {
  const ReducerOptions options = options_with("skip_hook", 2);
  EXPECT_EQ(options.comm_hook.start_step, 2);
  EXPECT_EQ(options.comm_hook.kind, "post_local_sgd");
}

TEST(ReducerMutants, OthersLeaveTheHookAlone) {
  EXPECT_EQ(options_with("flip_bit").comm_hook.kind, "none");
  EXPECT_EQ(options_with("ignore_parameter").ignored, std::vector<std::string>{"fc1"});
  MutantSpec of_rank_0;
  of_rank_0.kind = "hook_path";
  of_rank_0.rank = 0;
  ReducerOptions options;
  apply_reducer_mutants({of_rank_0}, 1, &options);
  EXPECT_EQ(options.comm_hook.kind, "none");
}

}  // namespace

}  // namespace lockstep
