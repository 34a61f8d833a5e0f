#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "sim/fault/bucket_mutants.h"

namespace lockstep {
namespace {

at::Tensor ramp(int64_t elements) { return at::arange(1, elements + 1, at::kFloat); }

std::vector<float> damaged(const std::string& operation, const MutantSpec& mutant = {},
                           int64_t elements = 5, const at::Tensor& last = {}) {
  const at::Tensor values = ramp(elements);
  damage(operation, mutant, last, values);
  return {values.data_ptr<float>(), values.data_ptr<float>() + elements};
}

MutantSpec at_element(int64_t element, std::optional<int64_t> bit = std::nullopt) {
  MutantSpec mutant;
  mutant.element = element;
  mutant.bit = bit;
  return mutant;
}

TEST(Damage, KindsAreAnOperationAndAPlace) {
  EXPECT_EQ(operation_at("drop_gradient", "gradient"), "drop");
  EXPECT_EQ(operation_at("stale_contribution", "contribution"), "stale");
  EXPECT_EQ(operation_at("stale_contribution", "gradient"), std::nullopt);
  EXPECT_EQ(operation_at("flip_bit", "gradient"), std::nullopt);
}

TEST(Damage, EveryOperationDoesWhatItSays) {
  EXPECT_EQ(damaged("drop"), (std::vector<float>{0, 0, 0, 0, 0}));
  EXPECT_EQ(damaged("double"), (std::vector<float>{2, 4, 6, 8, 10}));
  EXPECT_EQ(damaged("swap"), (std::vector<float>{3, 4, 1, 2, 5}));
  EXPECT_EQ(damaged("shift"), (std::vector<float>{1, 1, 2, 3, 4}));
  EXPECT_EQ(damaged("shift", at_element(2)), (std::vector<float>{1, 2, 3, 3, 4}));
  EXPECT_EQ(damaged("stale", {}, 3, at::ones({3})), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(damaged("flip", at_element(1, 31)), (std::vector<float>{1, -2, 3, 4, 5}));
  EXPECT_EQ(damaged("flip"), (std::vector<float>{1.5, 2, 3, 4, 5}));  // the mantissa's highest
  EXPECT_EQ(damaged("cast", {}, 1), (std::vector<float>{1}));
}

TEST(Damage, ACastLosesWhatBfloat16CannotHold) {
  const at::Tensor value = at::full({1}, 1.0F + 1.0F / 1024);
  damage("cast", {}, {}, value);
  EXPECT_EQ(value.item<float>(), 1.0F);
}

TEST(Damage, AFlushLosesDenormalNumbersAlone) {
  const float smallest = std::numeric_limits<float>::min();
  const at::Tensor values = at::tensor({smallest / 2, -smallest / 2, smallest, -1.0F});
  damage("flush", {}, {}, values);
  EXPECT_TRUE(at::equal(values, at::tensor({0.0F, 0.0F, smallest, -1.0F})));
  const at::Tensor wide = at::full({1}, 1e-40, at::kDouble);  // normal here
  damage("flush", {}, {}, wide);
  EXPECT_EQ(wide.item<double>(), 1e-40);
}

TEST(Damage, WithoutAPastNothingIsStale) {
  EXPECT_FALSE(damage("stale", {}, {}, ramp(3)));
  EXPECT_FALSE(damage("stale", {}, ramp(2), ramp(3)));  // another layout
  EXPECT_TRUE(damage("stale", {}, ramp(3), ramp(3)));
}

TEST(Damage, AnElementPastTheEndIsTheLast) {
  EXPECT_EQ(damaged("flip", at_element(99, 31), 2), (std::vector<float>{1, -2}));
  EXPECT_EQ(damaged("shift", at_element(99), 2), (std::vector<float>{1, 2}));
}

TEST(Damage, BitsOfEveryWidth) {
  at::Tensor wide = at::ones({1}, at::kDouble), half = at::ones({1}, at::kBFloat16);
  flip_bit(at_element(0, 63), wide);
  flip_bit(at_element(0, 63), half);  // one past its end: the sign
  EXPECT_EQ(wide.item<double>(), -1);
  EXPECT_EQ(half.item<float>(), -1);
}

TEST(Damage, OfASparseTensorItsValues) {
  const at::Tensor sparse =
      at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::ones({1, 2}), {4, 2});
  EXPECT_TRUE(damage("double", {}, {}, sparse));
  EXPECT_EQ(sparse._values()[0][1].item<float>(), 2);
}

}  // namespace

}  // namespace lockstep
