#include "scenarios/workloads/draws.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

at::Tensor drawn(int64_t step, std::vector<int64_t> samples, at::IntArrayRef shape) {
  SampleDraws draws(7);
  draws.begin(step, std::move(samples));
  return draws.uniform(shape);
}

TEST(SampleDraws, AreEachSamplesOwn) {
  const at::Tensor whole = drawn(3, {4, 0, 9, 2}, {5, 2});
  EXPECT_TRUE(whole.narrow(0, 1, 2).equal(drawn(3, {0, 9}, {5, 2})));
  EXPECT_TRUE(drawn(3, {2}, {5, 2}).equal(whole.narrow(0, 3, 1)));
  EXPECT_FALSE(whole[0].equal(whole[1]));
  EXPECT_FALSE(whole.equal(drawn(4, {4, 0, 9, 2}, {5, 2})));
  EXPECT_EQ(drawn(1, {}, {3}).sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(drawn(1, {5, 6}, {}).sizes(), (std::vector<int64_t>{2}));
}

TEST(SampleDraws, GoOnWithinAForwardAndBeginAnewWithTheNext) {
  SampleDraws draws(7);
  draws.begin(1, {0, 1});
  const at::Tensor first = draws.uniform({4});
  EXPECT_FALSE(first.equal(draws.uniform({4})));
  draws.begin(1, {0, 1});
  EXPECT_TRUE(first.equal(draws.uniform({4})));
  SampleDraws part(7);
  part.begin_part(draws, 1, 1);
  EXPECT_TRUE(part.uniform({4}).equal(first.narrow(0, 1, 1)));
}

TEST(SampleDraws, AreUniform) {
  std::vector<int64_t> samples(1000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  const at::Tensor values = drawn(1, samples, {100});
  EXPECT_GE(values.min().item<float>(), 0.0F);
  EXPECT_LT(values.max().item<float>(), 1.0F);
  EXPECT_NEAR(values.mean().item<float>(), 0.5, 0.005);
  EXPECT_NEAR(values.var().item<float>(), 1.0 / 12, 0.001);
  EXPECT_NEAR(values.mean(0).max().item<float>(), 0.5, 0.05);  // nor do samples hang together
  EXPECT_NEAR(values.mean(1).min().item<float>(), 0.5, 0.15);
}

TEST(Dropout, KeepsTheSameInEveryDtypeAndTheMean) {
  SampleDraws draws(11);
  Dropout layer(0.25);
  layer->draw_from(&draws);
  const auto masked = [&](at::ScalarType type) {
    draws.begin(1, {3, 1, 2});
    return layer->forward(at::ones({3, 1000}, type));
  };
  const at::Tensor single = masked(at::kFloat);
  EXPECT_TRUE(single.ne(0).equal(masked(at::kDouble).ne(0)));
  EXPECT_TRUE(single.ne(0).equal(masked(at::kBFloat16).ne(0)));
  EXPECT_NEAR(single.mean().item<float>(), 1, 0.05);
  EXPECT_EQ(single.max().item<float>(), 1 / 0.75F);
  layer->eval();
  EXPECT_TRUE(masked(at::kFloat).equal(at::ones({3, 1000})));
}

TEST(Dropout, RefusesWhatItCannotDo) {
  EXPECT_THROW(Dropout(1.0), std::invalid_argument);
  EXPECT_THROW(Dropout(-0.1), std::invalid_argument);
  Dropout layer(0.5);
  EXPECT_THROW(layer->forward(at::ones({2, 2})), std::runtime_error);  // has no generators
  SampleDraws draws(1);
  draws.begin(1, {0, 1, 2});
  layer->draw_from(&draws);
  EXPECT_THROW(layer->forward(at::ones({2, 2})), std::runtime_error);  // two rows, three samples
}

}  // namespace
}  // namespace lockstep
