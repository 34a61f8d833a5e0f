#include "reducer/data_parallel.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace lockstep {
namespace {

at::Tensor leaf(const at::Tensor& value) { return value.clone().requires_grad_(); }

// output = input times weight, plus a buffer that counts forwards and one with the first input
// seen.
struct Times {
  at::Tensor weight = leaf(at::zeros({2}));
  at::Tensor calls = at::zeros({1});
  at::Tensor first = at::zeros({1});
  NamedTensors parameters() const { return {{"weight", weight}}; }
  NamedTensors buffers() const { return {{"calls", calls}, {"first", first}}; }
};

class DataParallelTest : public testing::Test {
 protected:
  DataParallelTest() {
    model.weight = leaf(at::tensor({2.0F, 3.0F}));
    std::vector<DataParallel::Replica> replicas;
    for (Times& one : copies)
      replicas.push_back({[this, &one](const at::Tensor& input) {
                            const std::lock_guard lock(mutex);
                            threads.insert(std::this_thread::get_id());
                            rows.push_back(input.size(0));
                            if (fails && input.size(0) == 2) throw std::runtime_error("no");
                            one.calls.add_(1);
                            one.first.copy_(input[0][0]);
                            return input.mul(one.weight);
                          },
                          one.parameters(), one.buffers()});
    parallel =
        std::make_unique<DataParallel>(model.parameters(), model.buffers(), std::move(replicas));
  }

  Times model;
  std::vector<Times> copies{3};
  std::unique_ptr<DataParallel> parallel;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int64_t> rows;
  bool fails = false;
};

TEST_F(DataParallelTest, GradientsAreSummedAndOutputsKeepTheirOrder) {
  const at::Tensor input = at::arange(16, at::kFloat).view({8, 2});
  for (int64_t step = 1; step <= 2; ++step) {
    const at::Tensor output = parallel->forward(input);
    EXPECT_TRUE(at::equal(output, input.mul(model.weight).detach()));
    model.weight.mutable_grad() = at::Tensor();
    output.sum().backward();
    EXPECT_TRUE(at::equal(model.weight.grad(), input.sum(0)));
    const at::NoGradGuard no_grad;
    model.weight.add_(1);  // replicas must follow in the next forward
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (std::vector<int64_t>{2, 2, 3, 3, 3, 3}));  // 8 rows on 3 replicas
  EXPECT_GE(threads.size(), 2U);
}

TEST_F(DataParallelTest, BuffersBecomeTheFirstReplicas) {
  parallel->forward(at::ones({3, 2}));
  parallel->forward(at::ones({3, 2}));
  EXPECT_EQ(model.calls.item<float>(), 2);  // each replica began with the model's
  parallel->forward(at::tensor({3.0F, 4.0F, 5.0F}).view({3, 1}).expand({3, 2}));
  EXPECT_EQ(model.first.item<float>(), 3);
}

TEST_F(DataParallelTest, FewerRowsThanReplicas) {
  EXPECT_EQ(parallel->forward(at::ones({2, 2})).size(0), 2);
  EXPECT_EQ(rows.size(), 2U);
}

TEST_F(DataParallelTest, WhatAReplicaThrowsComesOut) {
  fails = true;
  EXPECT_THROW(parallel->forward(at::ones({8, 2})), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
