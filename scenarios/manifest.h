#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/options.h"

namespace lockstep {

// One parameter or buffer in registration order, as far as it can be known without LibTorch.
struct TensorSpec {
  std::string name;   // "fc1.weight"
  std::string dtype;  // "float32"
  std::vector<int64_t> shape;
  bool requires_grad = true;
  int64_t numel() const;
  int64_t bytes() const;  // numel x size of dtype
};

struct ModelManifest {
  std::vector<TensorSpec> parameters;
  std::vector<TensorSpec> buffers;
};

// Of a shipped model; none for a model that users registered themselves. A test compares every
// shipped model with what LibTorch really registers.
std::optional<ModelManifest> manifest_of(const Part& model, const std::string& dtype);

int64_t dtype_bytes(const std::string& dtype);

}  // namespace lockstep
