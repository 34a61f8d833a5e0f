#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace lockstep {

// Hooks on the gradients of tensors, gone with this object. One thread.
class TensorHooks {
 public:
  TensorHooks() = default;
  ~TensorHooks() { forget(); }
  TensorHooks(const TensorHooks&) = delete;
  TensorHooks& operator=(const TensorHooks&) = delete;

  // `hook` is given each gradient of `tensor` and returns what goes on instead of it; undefined:
  // the gradient itself.
  void add(const at::Tensor& tensor, std::function<at::Tensor(const at::Tensor&)> hook) {
    hooks_.emplace_back(tensor, tensor.register_hook(std::move(hook)));
  }
  void forget() {
    for (const auto& [tensor, number] : hooks_) tensor.remove_hook(number);
    hooks_.clear();
  }

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

}  // namespace lockstep
