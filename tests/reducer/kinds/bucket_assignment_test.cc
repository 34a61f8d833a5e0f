#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <numeric>
#include <random>

#include "reducer/base/reducer_base.h"
#include "reducer/bucket.h"

namespace lockstep {
namespace {

struct Input {
  std::vector<at::Tensor> tensors;
  std::vector<BucketItem> items;
  std::vector<bool> sparse;
  std::vector<int64_t> order;
  std::vector<int64_t> limits;
};

Input random_input(std::mt19937& engine) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(engine() % n); };
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kDouble, at::kHalf};
  const int64_t keys = 1 + below(3);
  Input input;
  const int64_t count = 1 + below(30);
  for (int64_t i = 0; i < count; ++i) {
    const auto dtype = dtypes[static_cast<size_t>(below(keys))];
    input.tensors.push_back(at::empty({below(40)}, dtype));
    input.sparse.push_back(below(12) == 0);
  }
  input.items = bucket_items({input.tensors, {}, {}, input.sparse});
  for (int64_t k = 1 + below(3); k > 0; --k) input.limits.push_back(below(300));
  input.order.resize(static_cast<size_t>(count));
  std::iota(input.order.begin(), input.order.end(), 0);
  return input;
}

BucketLayout of_libtorch(const Input& input, const std::vector<int64_t>& order) {
  std::vector<at::Tensor> tensors = input.tensors;
  for (size_t i = 0; i < order.size(); ++i) {
    tensors[i] = input.tensors[static_cast<size_t>(order[i])];
  }
  const std::vector<size_t> limits(input.limits.begin(), input.limits.end());
  const auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(tensors, limits, input.sparse, order));
  BucketLayout layout;
  for (const auto& bucket : buckets) layout.emplace_back(bucket.begin(), bucket.end());
  return layout;
}

TEST(BucketAssignment, EqualsLibTorchsInRegistrationOrder) {
  std::mt19937 engine(1);
  for (int i = 0; i < 3000; ++i) {
    const Input input = random_input(engine);
    ASSERT_EQ(assign_buckets(input.items, input.order, input.limits), of_libtorch(input, {}))
        << "case " << i;
  }
}

TEST(BucketAssignment, EqualsLibTorchsInReadyOrder) {
  std::mt19937 engine(2);
  for (int i = 0; i < 3000; ++i) {
    Input input = random_input(engine);
    std::shuffle(input.order.begin(), input.order.end(), engine);
    input.limits.resize(2, 100);
    ASSERT_EQ(rebuilt_layout(input.items, input.order, input.limits[0], input.limits[1]),
              of_libtorch(input, input.order))
        << "case " << i;
  }
}

}  // namespace
}  // namespace lockstep
