#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace lockstep {

// Calls `ready(place)` on the autograd thread each time the gradient of parameters[place] has been
// accumulated. Hooks are gone when it is destroyed; what `ready` throws comes out of backward().
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // Places of the parameters that the graph of `outputs` does not reach.
  std::vector<size_t> unreached_from(const std::vector<at::Tensor>& outputs) const;

 private:
  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;  // autograd itself holds it weakly
    uintptr_t key;
  };
  std::vector<Hook> hooks_;
};

}  // namespace lockstep
