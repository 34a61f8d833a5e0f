#pragma once

#include <memory>

#include "scenarios/workloads/workload.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

// Base of models whose layers LibTorch holds in one module. A tensor that is registered twice (tied
// weights) is listed once, under its first name.
class ModuleModel : public Model {
 public:
  explicit ModuleModel(std::shared_ptr<torch::nn::Module> module);
  ~ModuleModel() override;
  bool normalize_over(BatchGroup* group) override;
  bool draw_from(SampleDraws* draws) override;
  std::vector<std::string> undeclared_random_layers() const override;
  NamedTensors parameters() const override;
  NamedTensors buffers() const override;

 private:
  std::shared_ptr<torch::nn::Module> module_;
};

// One function per model kind: LibTorch's own initial weights of its layers, in float32 from the
// default generator, then converted to `dtype`. forward() takes [samples, ...] as the manifest
// says.

// Layers of numbers; samples of more than one dimension (images) are flattened.
std::unique_ptr<Model> build_linear(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_mlp(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_autoencoder(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_batch_norm_mlp(const Options& options, const std::string& dtype);
// A trunk and two branches, of which a forward may leave one (or its parameters) unused.
std::unique_ptr<Model> build_branches(const Options& options, const std::string& dtype);
// A trunk and two heads, whose outputs come in a container.
std::unique_ptr<Model> build_two_heads(const Options& options, const std::string& dtype);

// Convolutional networks; [samples, channels, height, width] to [samples, classes].
std::unique_ptr<Model> build_mnist_convnet(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_cifar_cnn(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_resnet18(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_resnet50(const Options& options, const std::string& dtype);

// Of tokens: [samples, length] of int64 to [samples, length, vocabulary].
std::unique_ptr<Model> build_embedding(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_gpt(const Options& options, const std::string& dtype);

}  // namespace lockstep
