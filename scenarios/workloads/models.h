#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/part.h"
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
// Layers of one parameter of any size each: a number that each multiplies by 1 + its mean.
std::unique_ptr<Model> build_sized_layers(const Options& options, const std::string& dtype);

// Convolutional networks; [samples, channels, height, width] to [samples, classes].
std::unique_ptr<Model> build_mnist_convnet(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_cifar_cnn(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_resnet18(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_resnet50(const Options& options, const std::string& dtype);

// Of tokens: [samples, length] of int64 to [samples, length, vocabulary].
std::unique_ptr<Model> build_embedding(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_gpt(const Options& options, const std::string& dtype);

// Converts parameters and buffers of floating point; counters stay integers.
void convert(torch::nn::Module& module, const std::string& dtype);

// The Model of a torch::nn::Module class with a forward(const at::Tensor&).
template <class Module>
class ModelOf : public ModuleModel {
 public:
  explicit ModelOf(std::shared_ptr<Module> module)
      : ModuleModel(module), module_(std::move(module)) {}
  at::Tensor forward(const at::Tensor& input) override { return module_->forward(input); }

 private:
  std::shared_ptr<Module> module_;
};

template <class Module>
std::unique_ptr<Model> model_of(std::shared_ptr<Module> module, const std::string& dtype) {
  convert(*module, dtype);
  return std::make_unique<ModelOf<Module>>(std::move(module));
}

// All tensors in `value`, as DDP looks for a forward's outputs: in lists, tuples and the values of
// dicts, however deep; in nothing else.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);

// How the weights of two and more dimensions lie in memory (model.memory_format); their values stay
// what they are.
// contiguous: the last dimension is the innermost.
// channels_last: of images (four dimensions) the channels are.
// transposed: the last dimension but one is.
// sliced: each is a slice of a tensor with twice its columns: there are gaps.
std::string memory_format_of(const Options& model);  // contiguous where a model has no such option

void lay_out_weights(const std::string& format, const Model& model);

// What torch.jit.save wrote, with the weights that it holds (option file). Loading runs the file's
// code: callers must have been told to trust it. Throws c10::Error for what is no module.
std::unique_ptr<Model> build_torchscript(const Options& options, const std::string& dtype);

}  // namespace lockstep
