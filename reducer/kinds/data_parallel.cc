#include "reducer/data_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "reducer/compat.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

// What torch::nn's own ReduceAdd does, whose header wants CUDA's: the gradient of a weight is zero
// plus each replica's, one after the other. A replica that did not use the weight adds nothing.
struct SumOverReplicas : public torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor sum;
    for (const at::Tensor& gradient : gradients) {
      if (!gradient.defined()) continue;
      if (!sum.defined()) sum = at::zeros_like(gradient);
      sum.add_(gradient);
    }
    return {sum};
  }
};

std::vector<at::Tensor> chunks_of(const at::Tensor& input, size_t count) {
  const auto replicas = static_cast<int64_t>(count);
  const int64_t rows = input.size(0);
  std::vector<at::Tensor> chunks;
  int64_t begin = 0;
  for (int64_t r = 0; r < replicas; ++r) {
    const int64_t size = rows / replicas + (r < rows % replicas ? 1 : 0);
    if (size > 0) chunks.push_back(input.narrow(0, begin, size));
    begin += size;
  }
  return chunks;
}

void copy_values(const NamedTensors& from, const NamedTensors& to) {
  for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i].tensor).copy_(from[i].tensor);
}

}  // namespace

DataParallel::DataParallel(NamedTensors parameters, NamedTensors buffers,
                           std::vector<Replica> replicas)
    : parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      replicas_(std::move(replicas)) {
  LOCKSTEP_CHECK(!replicas_.empty(), "no replica");
  for (const Replica& replica : replicas_)
    LOCKSTEP_CHECK(replica.parameters.size() == parameters_.size() &&
                       replica.buffers.size() == buffers_.size(),
                   "a replica of another model");
}

// A replica's weights are values of the model's, and what flows back from them is the model's.
void DataParallel::replicate() {
  {
    const c10::NoGradGuard no_grad;
    for (const Replica& replica : replicas_) {
      copy_values(parameters_, replica.parameters);
      copy_values(buffers_, replica.buffers);
    }
  }
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const at::Tensor& parameter = parameters_[p].tensor;
    if (!parameter.requires_grad()) continue;
    const auto sum = compat::make_node<SumOverReplicas, torch::autograd::Node>();
    sum->set_next_edges(torch::autograd::collect_next_edges(parameter));
    for (const Replica& replica : replicas_) {
      at::Tensor weights = replica.parameters[p].tensor;
      torch::autograd::set_history(weights, sum);
    }
  }
}

at::Tensor DataParallel::forward(const at::Tensor& input) {
  replicate();
  const std::vector<at::Tensor> chunks = chunks_of(input, replicas_.size());
  std::vector<at::Tensor> outputs(chunks.size());
  std::vector<std::exception_ptr> errors(chunks.size());
  std::vector<std::thread> threads;
  const bool with_graph = c10::GradMode::is_enabled();
  for (size_t r = 0; r < chunks.size(); ++r)
    threads.emplace_back([&, r] {
      const c10::AutoGradMode mode(with_graph);
      try {
        outputs[r] = replicas_[r].forward(chunks[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  const c10::NoGradGuard no_grad;
  copy_values(replicas_.front().buffers, buffers_);
  const c10::AutoGradMode mode(with_graph);
  return at::cat(outputs);
}

}  // namespace lockstep
