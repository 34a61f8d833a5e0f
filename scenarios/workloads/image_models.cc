#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "scenarios/scenario.h"
#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/models.h"

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

namespace {

torch::nn::Conv2d make_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Convolution and norm, registered one after the other as an owner's names say.
struct Stage {
  Stage(torch::nn::Module& owner, const std::string& convolution_name, const std::string& norm_name,
        torch::nn::Conv2d layer, const std::string& kind)
      : convolution(std::move(layer)),
        norm(make_norm(kind, convolution->options.out_channels(), true)) {
    owner.register_module(convolution_name, convolution);
    owner.register_module(norm_name, norm.module);
  }
  at::Tensor operator()(const at::Tensor& x) { return norm.forward(convolution->forward(x)); }

  torch::nn::Conv2d convolution;
  Norm norm;
};

// Two 3x3 convolutions; deep: 1x1, 3x3 and 1x1 to four times the width. The input is added.
class Unit : public torch::nn::Module {
 public:
  Unit(bool deep, int64_t in, int64_t width, int64_t stride, const std::string& norm) {
    const int64_t out = deep ? 4 * width : width;
    if (deep) {
      add(make_convolution(in, width, 1), norm);
      add(make_convolution(width, width, 3, stride), norm);
      add(make_convolution(width, out, 1), norm);
    } else {
      add(make_convolution(in, width, 3, stride), norm);
      add(make_convolution(width, width, 3), norm);
    }
    if (stride == 1 && in == out) return;
    auto module = register_module("downsample", std::make_shared<torch::nn::Module>());
    shortcut_ =
        std::make_unique<Stage>(*module, "0", "1", make_convolution(in, out, 1, stride), norm);
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input;
    for (size_t i = 0; i + 1 < stages_.size(); ++i) x = at::relu(stages_[i](x));
    const at::Tensor out = stages_.back()(x);  // first: C++ leaves the order within a sum open
    return at::relu(out + (shortcut_ ? (*shortcut_)(input) : input));
  }

 private:
  void add(torch::nn::Conv2d convolution, const std::string& norm) {
    const std::string number = std::to_string(stages_.size() + 1);
    stages_.emplace_back(*this, "conv" + number, "bn" + number, std::move(convolution), norm);
  }

  std::vector<Stage> stages_;
  std::unique_ptr<Stage> shortcut_;
};

class ResNet : public torch::nn::Module {
 public:
  ResNet(bool deep, const std::vector<int64_t>& units, const Options& options)
      : stem_(*this, "conv1", "bn1", make_convolution(3, options.integer("width"), 7, 2),
              options.text("norm")) {
    int64_t in = options.integer("width");
    for (size_t i = 0; i < units.size(); ++i) {
      auto layer =
          register_module("layer" + std::to_string(i + 1), std::make_shared<torch::nn::Module>());
      const int64_t width = options.integer("width") << i;
      for (int64_t k = 0; k < units[i]; ++k) {
        const int64_t stride = i > 0 && k == 0 ? 2 : 1;
        units_.push_back(layer->register_module(
            std::to_string(k),
            std::make_shared<Unit>(deep, in, width, stride, options.text("norm"))));
        in = deep ? 4 * width : width;
      }
    }
    fc_ = register_module("fc", torch::nn::Linear(in, options.integer("classes")));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = at::max_pool2d(at::relu(stem_(input)), 3, 2, 1);
    for (const std::shared_ptr<Unit>& unit : units_) x = unit->forward(x);
    return fc_->forward(x.mean({2, 3}));
  }

 private:
  Stage stem_;
  std::vector<std::shared_ptr<Unit>> units_;
  torch::nn::Linear fc_ = nullptr;
};

}  // namespace

std::unique_ptr<Model> build_resnet18(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<ResNet>(false, std::vector<int64_t>{2, 2, 2, 2}, options),
                  dtype);
}

std::unique_ptr<Model> build_resnet50(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<ResNet>(true, std::vector<int64_t>{3, 4, 6, 3}, options), dtype);
}

}  // namespace lockstep
