#include "scenarios/workloads/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/torch/scenarios.h"

namespace lockstep {
namespace {

Scenario small(const Part& optimizer) {
  Scenario scenario = scenario_of(1, 6, mlp({5, 7, 3}), randn(24, 5, 3));
  scenario.optimizer = optimizer;
  return scenario;
}

Training trained_from(const Scenario& scenario, uint64_t seed) {
  const RandomSection random(seed);
  return build_training(scenario, "float32");
}

void train(const Scenario& scenario, int64_t first, int64_t last, Training* training) {
  for (int64_t step = first; step <= last; ++step) {
    at::Tensor input;
    {
      const RandomSection random(static_cast<uint64_t>(1000 + step));
      input = at::randn({8, 5});
    }
    clear_gradients(training->parameters, "none");
    training->model->forward(input).square().sum().backward();
    update(scenario, step, training);
  }
}

CheckpointFile file_of(const Training& training, bool optimizer_state) {
  CheckpointFile file;
  file.tensors = saved_tensors(training, optimizer_state);
  // As through a file.
  return decode_checkpoint(encode_checkpoint(file), "x.checkpoint");
}

std::string error_of(const CheckpointFile& file, Training* training) {
  try {
    restore(file, "x.checkpoint", true, training);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST(Checkpoint, ResumedTrainingIsTheUninterruptedOne) {
  for (const Part& optimizer : {sgd(0.1), sgd(0.1, 0.9), adam(), adam(true)}) {
    const Scenario scenario = small(optimizer);
    Training whole = trained_from(scenario, 1);
    train(scenario, 1, 3, &whole);
    const CheckpointFile file = file_of(whole, true);
    train(scenario, 4, 6, &whole);
    Training resumed = trained_from(scenario, 2);
    restore(file, "x.checkpoint", true, &resumed);
    for (const NamedTensor& parameter : resumed.parameters)
      EXPECT_FALSE(parameter.tensor.grad().defined()) << parameter.name;
    train(scenario, 4, 6, &resumed);
    EXPECT_EQ(first_not_restored(saved_tensors(whole, true), saved_tensors(resumed, true)), "")
        << optimizer.kind;
  }
}

// Half precision rounds elements that a kernel takes one by one in another way.
TEST(Checkpoint, StateLiesInMemoryAsItDid) {
  for (const char* format : {"transposed", "sliced"}) {
    Scenario scenario = small(adam(true));
    scenario.model.options.set("memory_format", std::string(format));
    Training whole = trained_from(scenario, 1);
    train(scenario, 1, 1, &whole);
    Training resumed = trained_from(scenario, 2);
    restore(file_of(whole, true), "x.checkpoint", true, &resumed);
    const NamedTensors before = whole.optimizer->state(), after = resumed.optimizer->state();
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(before[i].tensor.strides(), after[i].tensor.strides())
          << format << " " << before[i].name;
  }
}

TEST(Checkpoint, WithoutOptimizerStateTheRunGoesAnotherWay) {
  const Scenario scenario = small(sgd(0.1, 0.9));
  Training whole = trained_from(scenario, 1);
  train(scenario, 1, 3, &whole);
  Training resumed = trained_from(scenario, 2);
  restore(file_of(whole, false), "x.checkpoint", false, &resumed);
  EXPECT_EQ(first_not_restored(saved_tensors(whole, false), saved_tensors(resumed, false)), "");
  EXPECT_THAT(first_not_restored(saved_tensors(whole, true), saved_tensors(resumed, true)),
              testing::HasSubstr("optimizer_state"));
  // Asked for, its absence is an error.
  EXPECT_EQ(error_of(file_of(whole, false), &resumed),
            "checkpoint x.checkpoint: holds no optimizer state");
}

TEST(Checkpoint, AnotherModelsFileChangesNothing) {
  Scenario other = small(sgd(0.1, 0.9));
  other.model = mlp({5, 8, 3});
  Training theirs = trained_from(other, 1);
  train(other, 1, 1, &theirs);
  Training ours = trained_from(small(sgd(0.1, 0.9)), 2);
  const std::vector<SavedTensor> before = saved_tensors(ours, true);
  EXPECT_THAT(error_of(file_of(theirs, true), &ours),
              testing::HasSubstr("holds parameter fc1.weight [8 5] of float32 where this run has "
                                 "fc1.weight [7 5] of float32"));
  Training adams = trained_from(small(adam()), 1);
  train(small(adam()), 1, 1, &adams);
  EXPECT_THAT(error_of(file_of(adams, true), &ours), testing::HasSubstr("optimizer state"));
  EXPECT_EQ(first_not_restored(before, saved_tensors(ours, true)), "");
}

TEST(Checkpoint, GeneratorGoesOnWhereItWas) {
  Training training = trained_from(small(sgd(0.1)), 1);
  at::manual_seed(5);
  at::randn({3});
  const CheckpointFile file = file_of(training, true);
  const at::Tensor expected = at::randn({4});
  at::randn({9});
  restore(file, "x.checkpoint", true, &training);
  EXPECT_TRUE(at::randn({4}).equal(expected));
}

TEST(Checkpoint, HeldOutLossIsRepeatableAndChangesNothing) {
  const Scenario scenario = small(sgd(0.1));
  Training training = trained_from(scenario, 1);
  at::manual_seed(5);
  const std::vector<SavedTensor> before = saved_tensors(training, true);
  const double loss = held_out_loss(scenario, "float32", 16, &training);
  EXPECT_EQ(held_out_loss(scenario, "float32", 16, &training), loss);
  const std::vector<SavedTensor> after = saved_tensors(training, true);
  EXPECT_EQ(before.back().bytes, after.back().bytes);  // the generator
  EXPECT_EQ(first_not_restored(before, after), "");
  train(scenario, 1, 2, &training);
  EXPECT_NE(held_out_loss(scenario, "float32", 16, &training), loss);
}

}  // namespace
}  // namespace lockstep
