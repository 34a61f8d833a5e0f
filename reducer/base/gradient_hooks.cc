#include "reducer/base/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

#include "reducer/compat.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

std::unordered_set<Node*> reach(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             std::function<void(size_t)> ready) {
  for (size_t place = 0; place < parameters.size(); ++place) {
    auto accumulator =
        compat::share_node(torch::autograd::impl::grad_accumulator(parameters[place]));
    const uintptr_t key =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [ready, place](const variable_list& outputs, const variable_list&) {
              ready(place);
              return outputs;
            }));
    hooks_.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

std::vector<size_t> GradientHooks::unreached_from(const std::vector<at::Tensor>& outputs) const {
  const auto seen = reach(outputs);
  std::vector<size_t> places;
  for (size_t place = 0; place < hooks_.size(); ++place) {
    if (!seen.contains(hooks_[place].accumulator.get())) places.push_back(place);
  }
  return places;
}

}  // namespace lockstep
