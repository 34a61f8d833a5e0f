#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scenarios/manifest.h"

namespace lockstep {

// Writes down what LibTorch's layers register, in the order in which they register it.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(std::string dtype) : dtype_(std::move(dtype)) {}

  // An empty name is the model itself. kernel: of a square convolution.
  void linear(const std::string& name, int64_t in, int64_t out, bool bias = true);
  // Of what comes after; gives back the one before.
  std::string use_dtype(std::string dtype) { return std::exchange(dtype_, std::move(dtype)); }
  void convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel,
                   bool bias = true);
  // batch, frozen, sync and sync_equal: with running statistics. group and layer: without.
  void norm(const std::string& name, int64_t channels, const std::string& kind);
  void parameter(const std::string& name, std::vector<int64_t> shape, bool sparse_gradient = false);
  // Of one sample; see ModelManifest.
  void shapes(std::vector<int64_t> input, std::vector<int64_t> output, int64_t vocabulary = 0);

  ModelManifest take() { return std::move(manifest_); }

 private:
  std::string dtype_;
  ModelManifest manifest_;
};

// One function for each family of models.
void describe_linear(const Options& options, ManifestBuilder& builder);
void describe_mlp(const Options& options, ManifestBuilder& builder);
void describe_autoencoder(const Options& options, ManifestBuilder& builder);
void describe_batch_norm_mlp(const Options& options, ManifestBuilder& builder);
void describe_branches(const Options& options, ManifestBuilder& builder);
void describe_mnist_convnet(const Options& options, ManifestBuilder& builder);
void describe_cifar_cnn(const Options& options, ManifestBuilder& builder);
void describe_resnet18(const Options& options, ManifestBuilder& builder);
void describe_resnet50(const Options& options, ManifestBuilder& builder);
void describe_embedding(const Options& options, ManifestBuilder& builder);
void describe_gpt(const Options& options, ManifestBuilder& builder);

}  // namespace lockstep
