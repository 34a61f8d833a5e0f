#pragma once

// Stands in for a header that LibTorch 1.13.1's reducer.hpp includes and Debian does not ship. Only
// these two names are used there, and only as types.
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
