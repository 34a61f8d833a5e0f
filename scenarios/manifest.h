#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/part.h"

namespace lockstep {

// One parameter or buffer in registration order, as far as it can be known without LibTorch.
struct TensorSpec {
  std::string name;   // "fc1.weight"
  std::string dtype;  // "float32"
  std::vector<int64_t> shape;
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

// Of a shipped model; null for a model that users registered themselves. A test compares every
// shipped model with what LibTorch really registers. `sample`: shape of one sample, which decides
// how much work a layer has. Each thread keeps the last few.
std::shared_ptr<const ModelManifest> manifest_of(const Part& model, const std::string& dtype,
                                                 const std::vector<int64_t>& sample = {});

// What a data set gives for each sample, as far as the kinds drawn at random go; none for others.
struct DataShape {
  std::vector<int64_t> input;
  std::vector<int64_t> target;
  int64_t vocabulary = 0;  // inputs are integers below this; 0: numbers
  int64_t classes = 0;     // targets are integers below this; 0: numbers
};
std::optional<DataShape> data_shape(const Part& data);

// Is this kind of model known by its parameters alone, so that only emulated compute runs it?
bool is_only_described(const std::string& model_kind);

int64_t dtype_bytes(const std::string& dtype);

// How a square window moves over an image.
struct Window {
  int64_t size;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;  // of channels, each convolved by itself
};

// Writes down what LibTorch's layers register, in the order in which they register it, and how much
// work they have. Layers are added in the order in which a forward comes to them, which is that of
// registration unless it is reversed.
class ManifestBuilder {
 public:
  // At how many places of a sample a layer is applied: one, or the pixels of an image.
  struct Extent {
    int64_t height = 1, width = 1;
  };

  ManifestBuilder(std::string model, std::string dtype, std::vector<int64_t> sample)
      : model_(std::move(model)), dtype_(std::move(dtype)), sample_(std::move(sample)) {}

  // What the first layer is applied to: every pixel of an image, every token of a text. Without,
  // it is the whole sample.
  void begin_with_pixels();
  void begin_with_tokens();
  int64_t places() const { return extent_.height * extent_.width; }

  // An empty name is the model itself.
  void linear(const std::string& name, int64_t in, int64_t out, bool bias = true);
  // Of what comes after; gives back the one before.
  std::string use_dtype(std::string dtype) { return std::exchange(dtype_, std::move(dtype)); }
  // The extent is then that of its output.
  void convolution(const std::string& name, int64_t in, int64_t out, const Window& window,
                   bool bias = true);
  // Without a bias, of height x width pixels, padded so that the extent stays what it is.
  void stripe(const std::string& name, int64_t in, int64_t out, int64_t height, int64_t width);
  // Nothing else: added to what a layer without parameters makes.
  void own_bias(const std::string& name, int64_t size);
  // batch, frozen, sync and sync_equal: with running statistics. group and layer: without.
  void norm(const std::string& name, int64_t channels, const std::string& kind);
  // A row of `width` numbers for each of `rows` tokens.
  void embedding(const std::string& name, int64_t rows, int64_t width,
                 bool sparse_gradient = false);
  // The layers so far were registered from the last to the first, each one's parameters in order.
  void reverse_registration();
  // One of any shape: what a layer of two dimensions and more multiplies each sample with, once.
  void listed(const std::string& name, std::vector<int64_t> shape);
  // Has no parameters of its own.
  void work(const std::string& name, int64_t macs);
  void pool(const Window& window);
  void flatten() { extent_ = {}; }
  const Extent& extent() const { return extent_; }
  void set_extent(const Extent& extent) { extent_ = extent; }
  // Of one sample; see ModelManifest.
  void shapes(std::vector<int64_t> input, std::vector<int64_t> output, int64_t vocabulary = 0);

  ModelManifest take() { return std::move(manifest_); }

 private:
  void begin(const std::string& layer, int64_t macs, int64_t elements);
  void parameter(const std::string& layer, const char* name, std::vector<int64_t> shape,
                 bool sparse_gradient = false);

  const std::string model_;
  std::string dtype_;
  const std::vector<int64_t> sample_;
  Extent extent_;
  ModelManifest manifest_;
};

// One function for each family of models.
void describe_linear(const Options& options, ManifestBuilder& builder);
void describe_mlp(const Options& options, ManifestBuilder& builder);
void describe_autoencoder(const Options& options, ManifestBuilder& builder);
void describe_batch_norm_mlp(const Options& options, ManifestBuilder& builder);
void describe_branches(const Options& options, ManifestBuilder& builder);
void describe_two_heads(const Options& options, ManifestBuilder& builder);
void describe_mnist_convnet(const Options& options, ManifestBuilder& builder);
void describe_cifar_cnn(const Options& options, ManifestBuilder& builder);
void describe_resnet18(const Options& options, ManifestBuilder& builder);
void describe_resnet50(const Options& options, ManifestBuilder& builder);
void describe_resnet101(const Options& options, ManifestBuilder& builder);
void describe_resnet152(const Options& options, ManifestBuilder& builder);
void describe_resnext50(const Options& options, ManifestBuilder& builder);
void describe_resnext101(const Options& options, ManifestBuilder& builder);
void describe_vgg16(const Options& options, ManifestBuilder& builder);
void describe_alexnet(const Options& options, ManifestBuilder& builder);
void describe_inception_v3(const Options& options, ManifestBuilder& builder);
void describe_bert(const Options& options, ManifestBuilder& builder);
void describe_parameters(const Options& options, ManifestBuilder& builder);
void describe_embedding(const Options& options, ManifestBuilder& builder);
void describe_gpt(const Options& options, ManifestBuilder& builder);

}  // namespace lockstep
