#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <mutex>
#include <vector>

#include "reducer/reducer.h"
#include "tests/reducer/test_group.h"

namespace lockstep {

// Records what a reducer reports.
class TestProbe : public Probe {
 public:
  void parameter_ready(int64_t parameter) noexcept override {
    std::lock_guard lock(mutex);
    parameters.push_back(parameter);
  }
  void bucket_ready(int64_t bucket) noexcept override {
    std::lock_guard lock(mutex);
    buckets.push_back(bucket);
  }
  void arrival(uint32_t sequence, Operation operation, int64_t bucket, int64_t bytes,
               uint8_t dtype) noexcept override {
    std::lock_guard lock(mutex);
    arrivals.push_back({sequence, operation, bucket, bytes, dtype});
  }
  void end(uint32_t sequence, int64_t bucket) noexcept override {
    std::lock_guard lock(mutex);
    ends.push_back({sequence, bucket});
  }
  void assigned(int64_t parameter, int64_t bucket, int64_t place) noexcept override {
    std::lock_guard lock(mutex);
    if (bucket == 0 && place == 0) layout.clear();
    if (static_cast<size_t>(bucket) >= layout.size())
      layout.resize(static_cast<size_t>(bucket) + 1);
    layout[static_cast<size_t>(bucket)].push_back(parameter);
  }

  struct Arrival {
    uint32_t sequence;
    Operation operation;
    int64_t bucket;
    int64_t bytes;
    uint8_t dtype;
  };
  std::mutex mutex;
  std::vector<int64_t> parameters;
  std::vector<int64_t> buckets;
  std::vector<Arrival> arrivals;
  std::vector<std::pair<uint32_t, int64_t>> ends;
  BucketLayout layout;
};

// Two layers with a third that a forward may leave out, and one buffer.
struct SmallModel {
  NamedTensors parameters;
  NamedTensors buffers;

  explicit SmallModel(uint64_t seed) {
    add("fc1.weight", {9, 7}, seed + 1);
    add("fc1.bias", {9}, seed + 2);
    add("fc2.weight", {9, 9}, seed + 3);
    add("fc2.bias", {9}, seed + 4);
    add("fc3.weight", {3, 9}, seed + 5);
    add("fc3.bias", {3}, seed + 6);
    buffers.push_back({"count", random_tensor({2}, seed + 7)});
  }

  void add(const std::string& name, at::IntArrayRef shape, uint64_t seed) {
    parameters.push_back({name, random_tensor(shape, seed).mul_(0.3).requires_grad_(true)});
  }
  const at::Tensor& p(size_t i) const { return parameters[i].tensor; }

  at::Tensor forward(const at::Tensor& input, bool middle = true) const {
    at::Tensor x = at::relu(at::linear(input, p(0), p(1)));
    if (middle) x = at::relu(at::linear(x, p(2), p(3)));
    return at::linear(x, p(4), p(5));
  }

  void clear_gradients(bool zero) const {
    for (const NamedTensor& parameter : parameters) {
      at::Tensor& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) continue;
      if (zero) {
        gradient.zero_();
      } else {
        gradient = at::Tensor();
      }
    }
  }

  void descend(double rate) const {
    c10::NoGradGuard no_grad;
    for (const NamedTensor& parameter : parameters) {
      if (!parameter.tensor.grad().defined()) continue;
      at::Tensor weights = parameter.tensor;
      weights.sub_(parameter.tensor.grad() * rate);
    }
  }

  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> copies;
    for (const NamedTensor& parameter : parameters) {
      const at::Tensor& gradient = parameter.tensor.grad();
      copies.push_back(gradient.defined() ? gradient.clone() : at::Tensor());
    }
    return copies;
  }
};

inline at::Tensor shard_loss(const SmallModel& model, int64_t rank, int64_t step,
                             bool middle = true) {
  const auto seed = static_cast<uint64_t>(1000 * step + rank);
  const at::Tensor input = random_tensor({5, 7}, 10 * seed);
  const at::Tensor target = random_tensor({5, 3}, 10 * seed + 1);
  return at::mse_loss(model.forward(input, middle), target);
}

}  // namespace lockstep
