#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "scenarios/workloads/workload.h"
#include "tests/golden/torch/scenarios.h"
#include "tests/scenarios/workloads/expect_same.h"

namespace lockstep {
namespace {

Part adamw() {
  Part part = adam(true);
  part.kind = "adamw";
  part.options.set("weight_decay", 0.01);
  return part;
}

Part adagrad() {
  Part part{"adagrad", {}};
  part.options.set("lr", 0.1);
  part.options.set("lr_decay", 0.01);
  part.options.set("weight_decay", 0.0);
  part.options.set("initial_accumulator", 0.5);
  part.options.set("eps", 1e-10);
  return part;
}

Part rmsprop(double momentum, bool centered) {
  Part part{"rmsprop", {}};
  part.options.set("lr", 0.01);
  part.options.set("alpha", 0.9);
  part.options.set("eps", 1e-8);
  part.options.set("weight_decay", 0.0);
  part.options.set("momentum", momentum);
  part.options.set("centered", centered);
  return part;
}

std::vector<Part> every_kind() {
  return {sgd(0.1),          sgd(0.1, 0.9),     adam(), adam(true), adamw(), adagrad(),
          rmsprop(0, false), rmsprop(0.9, true)};
}

NamedTensors weights() {
  const RandomSection random(7);
  return build_model(linear(3, 2), "float32")->parameters();
}

// Gradients of the same step number are the same.
void step(Optimizer& optimizer, const NamedTensors& parameters, int number) {
  for (const NamedTensor& p : parameters)
    p.tensor.mutable_grad() = (p.tensor.detach() * number + 0.25).clone();
  optimizer.step();
}

NamedTensors copied(const NamedTensors& from) {
  NamedTensors to;
  for (const NamedTensor& item : from)
    to.push_back({item.name, item.tensor.defined() ? item.tensor.detach().clone() : at::Tensor()});
  return to;
}

// One step with gradients of 1, then one with gradients of 3, against formulas.
TEST(Optimizers, StateHasNamesInOrderAndTheRightNumbers) {
  const auto step = [](Optimizer& optimizer, const NamedTensors& parameters, double gradient) {
    for (const NamedTensor& p : parameters)
      p.tensor.mutable_grad() = at::full_like(p.tensor, gradient).detach();
    optimizer.step();
  };
  const NamedTensors parameters = build_model(linear(2, 2), "float64")->parameters();
  const auto momentum = build_optimizer(sgd(0.1, 0.5), parameters);
  ASSERT_EQ(momentum->state().size(), 2u);
  EXPECT_EQ(momentum->state()[0].name, "weight.momentum_buffer");
  EXPECT_EQ(momentum->state()[1].name, "bias.momentum_buffer");
  EXPECT_FALSE(momentum->state()[0].tensor.defined());
  step(*momentum, parameters, 1);
  step(*momentum, parameters, 3);
  EXPECT_TRUE(momentum->state()[0].tensor.eq(3.5).all().item<bool>());
  EXPECT_TRUE(build_optimizer(sgd(0.1), parameters)->state().empty());

  const auto adaptive = build_optimizer(adam(true), parameters);
  EXPECT_EQ(adaptive->state()[3].tensor.item<int64_t>(), 0);
  step(*adaptive, parameters, 2);
  const NamedTensors state = adaptive->state();
  ASSERT_EQ(state.size(), 8u);
  EXPECT_EQ(state[0].name, "weight.exp_avg");
  EXPECT_EQ(state[3].name, "weight.step");
  EXPECT_EQ(state[3].tensor.item<int64_t>(), 1);
  EXPECT_EQ(state[5].name, "bias.exp_avg_sq");
  EXPECT_EQ(state[6].name, "bias.max_exp_avg_sq");
  EXPECT_NEAR(state[0].tensor.max().item<double>(), 0.2, 1e-15);
  EXPECT_NEAR(state[5].tensor.max().item<double>(), 0.004, 1e-15);
}

TEST(Optimizers, GoOnFromLoadedStateAsIfNeverInterrupted) {
  for (const Part& part : every_kind())
    for (int saved_after : {0, 1, 3}) {
      SCOPED_TRACE(part.kind + " after step " + std::to_string(saved_after));
      const NamedTensors straight = weights();
      const NamedTensors resumed = weights();
      const auto first = build_optimizer(part, straight);
      for (int i = 1; i <= saved_after; ++i) step(*first, straight, i);
      const NamedTensors saved = copied(first->state());
      for (size_t i = 0; i < resumed.size(); ++i)
        at::Tensor(resumed[i].tensor.data()).copy_(straight[i].tensor.data());
      const auto second = build_optimizer(part, resumed);
      second->load(saved);
      expect_same(second->state(), saved);
      for (int i = saved_after + 1; i <= 5; ++i) {
        step(*first, straight, i);
        step(*second, resumed, i);
      }
      expect_same(resumed, straight);
      expect_same(second->state(), first->state());
    }
}

// An optimizer that has gone elsewhere meanwhile; what was loaded stays the caller's.
TEST(Optimizers, LoadReplacesStateAndCopiesIt) {
  for (const Part& part : every_kind()) {
    SCOPED_TRACE(part.kind);
    const NamedTensors parameters = weights();
    const auto optimizer = build_optimizer(part, parameters);
    const NamedTensors fresh = copied(optimizer->state());
    step(*optimizer, parameters, 1);
    const NamedTensors saved = copied(optimizer->state());
    const NamedTensors given = copied(saved);
    step(*optimizer, parameters, 2);
    optimizer->load(given);
    expect_same(optimizer->state(), saved);
    step(*optimizer, parameters, 3);
    expect_same(given, saved);
    optimizer->load(fresh);
    expect_same(optimizer->state(), fresh);
  }
}

TEST(Optimizers, LearningRateCanBeSet) {
  for (const Part& part : every_kind()) {
    const NamedTensors parameters = weights();
    const NamedTensors before = copied(parameters);
    const auto optimizer = build_optimizer(part, parameters);
    EXPECT_EQ(optimizer->lr(), part.options.number("lr"));
    optimizer->set_lr(0);
    EXPECT_EQ(optimizer->lr(), 0);
    step(*optimizer, parameters, 1);
    expect_same(parameters, before);
  }
}

}  // namespace

}  // namespace lockstep
