#include "sim/worker/local_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(LocalGradients, WhatIsMissingFromTheSumIsNamed) {
  Training training;
  StateLayout layout;
  for (const char* name : {"a", "b"}) {
    const auto place = static_cast<int64_t>(layout.entries.size());
    training.parameters.push_back({name, at::ones({2}).set_requires_grad(true)});
    layout.entries.push_back({StateKind::gradient, name, place, "float32", 2, 8, place * 64});
  }
  const at::Tensor& a = training.parameters[0].tensor;
  const at::Tensor& b = training.parameters[1].tensor;
  LocalGradients local(training, layout);
  EXPECT_EQ(local.lost(), "");  // nothing yet, and no gradient
  (a * 2 + b * 3).sum().backward();
  (a * 2).sum().backward();
  EXPECT_EQ(local.lost(), "");
  b.mutable_grad().zero_();
  EXPECT_EQ(local.lost(), "b");
  a.mutable_grad().reset();
  EXPECT_EQ(local.lost(), "a");
  local.clear();
  EXPECT_EQ(local.lost(), "");
}

}  // namespace
}  // namespace lockstep
