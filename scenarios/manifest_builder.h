#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scenarios/manifest.h"

namespace lockstep {

// How a square window moves over an image.
struct Window {
  int64_t size;
  int64_t stride = 1;
  int64_t padding = 0;
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
  // batch, frozen, sync and sync_equal: with running statistics. group and layer: without.
  void norm(const std::string& name, int64_t channels, const std::string& kind);
  // A row of `width` numbers for each of `rows` tokens.
  void embedding(const std::string& name, int64_t rows, int64_t width,
                 bool sparse_gradient = false);
  // The layers so far were registered from the last to the first, each one's parameters in order.
  void reverse_registration();
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
void describe_embedding(const Options& options, ManifestBuilder& builder);
void describe_gpt(const Options& options, ManifestBuilder& builder);

}  // namespace lockstep
