#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/options.h"

namespace lockstep {

// One parameter or buffer in registration order, as far as it can be known without LibTorch.
struct TensorSpec {
  std::string name;   // "fc1.weight"
  std::string dtype;  // "float32"
  std::vector<int64_t> shape;
  bool requires_grad = true;
  bool sparse_gradient = false;
  int64_t numel() const;
  int64_t bytes() const;  // numel x size of dtype
};

// A layer as one forward of the model comes to it. Backward goes the other way round.
struct LayerSpec {
  std::string name;                 // "layer1.0.conv1"; of a model that is one layer its kind
  std::vector<int64_t> parameters;  // its own, in registration order; none: attention, a tied head
  // Of one sample: multiply-accumulates of a linear layer or convolution, biases left out; numbers
  // that a norm or an embedding writes. 0 where manifest_of() was given no sample.
  int64_t macs = 0;
  int64_t elements = 0;
};

struct ModelManifest {
  std::vector<TensorSpec> parameters;
  std::vector<TensorSpec> buffers;
  std::vector<LayerSpec> layers;
  // Shape of one sample; -1: any size. A shape of one size takes any sample of so many numbers.
  std::vector<int64_t> input;
  std::vector<int64_t> output;  // the last: features or, for classification, classes
  int64_t vocabulary = 0;       // inputs are integers below this; 0: numbers
  // Normalizes with statistics of the batch it is given: shards are another function than the
  // whole batch, unless a group of ranks gives it their statistics (sync).
  bool batch_statistics = false;
};

// Of a shipped model; none for a model that users registered themselves. A test compares every
// shipped model with what LibTorch really registers. `sample`: shape of one sample, which decides
// how much work a layer has.
std::optional<ModelManifest> manifest_of(const Part& model, const std::string& dtype,
                                         const std::vector<int64_t>& sample = {});

// What a data set gives for each sample, as far as the kinds drawn at random go; none for others.
struct DataShape {
  std::vector<int64_t> input;
  std::vector<int64_t> target;
  int64_t vocabulary = 0;  // inputs are integers below this; 0: numbers
  int64_t classes = 0;     // targets are integers below this; 0: numbers
};
std::optional<DataShape> data_shape(const Part& data);

int64_t dtype_bytes(const std::string& dtype);

}  // namespace lockstep
