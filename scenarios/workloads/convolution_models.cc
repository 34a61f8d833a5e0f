#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "scenarios/optional_keys.h"
#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/module_of.h"

namespace lockstep {
namespace {

at::Tensor half(const at::Tensor& x) { return at::max_pool2d(x, 2); }

// 21,840 parameters with 10 classes. As the usual MNIST example, with dropout where asked for.
class MnistConvnet : public torch::nn::Module {
 public:
  MnistConvnet(int64_t classes, double dropout)
      : dropout_(register_module("dropout", Dropout(dropout))),
        conv1_(register_module("conv1", torch::nn::Conv2d(1, 10, 5))),
        conv2_(register_module("conv2", torch::nn::Conv2d(10, 20, 5))),
        fc1_(register_module("fc1", torch::nn::Linear(320, 50))),
        fc2_(register_module("fc2", torch::nn::Linear(50, classes))) {}

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = at::relu(half(conv1_->forward(input)));
    x = at::relu(half(dropout_(conv2_->forward(x))));
    return fc2_->forward(dropout_(at::relu(fc1_->forward(x.flatten(1)))));
  }

 private:
  Dropout dropout_;
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
};

// 62,006 parameters with 10 classes.
class CifarCnn : public torch::nn::Module {
 public:
  explicit CifarCnn(int64_t classes)
      : conv1_(register_module("conv1", torch::nn::Conv2d(3, 6, 5))),
        conv2_(register_module("conv2", torch::nn::Conv2d(6, 16, 5))),
        fc1_(register_module("fc1", torch::nn::Linear(400, 120))),
        fc2_(register_module("fc2", torch::nn::Linear(120, 84))),
        fc3_(register_module("fc3", torch::nn::Linear(84, classes))) {}

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = half(at::relu(conv1_->forward(input)));
    x = half(at::relu(conv2_->forward(x))).flatten(1);
    x = at::relu(fc1_->forward(x));
    return fc3_->forward(at::relu(fc2_->forward(x)));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

std::unique_ptr<Model> build_mnist_convnet(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<MnistConvnet>(options.integer("classes"), dropout_of(options)),
                  dtype);
}

std::unique_ptr<Model> build_cifar_cnn(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<CifarCnn>(options.integer("classes")), dtype);
}

}  // namespace lockstep
