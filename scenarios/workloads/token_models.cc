#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "scenarios/scenario.h"
#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/models.h"

namespace lockstep {
namespace {

// Each token alone decides on the next one.
class Bigram : public torch::nn::Module {
 public:
  explicit Bigram(const Options& options) {
    const int64_t vocabulary = options.integer("vocabulary"), width = options.integer("width");
    embedding_ = register_module(
        "embedding",
        torch::nn::Embedding(
            torch::nn::EmbeddingOptions(vocabulary, width).sparse(options.flag("sparse"))));
    fc_ = register_module("fc", torch::nn::Linear(width, vocabulary));
  }

  at::Tensor forward(const at::Tensor& tokens) { return fc_->forward(embedding_->forward(tokens)); }

 private:
  torch::nn::Embedding embedding_ = nullptr;
  torch::nn::Linear fc_ = nullptr;
};

torch::nn::LayerNorm make_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

class Attention : public torch::nn::Module {
 public:
  Attention(int64_t width, int64_t heads)
      : heads_(heads),
        qkv_(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out_(register_module("out", torch::nn::Linear(width, width))) {}

  // A token sees itself and those before it.
  at::Tensor forward(const at::Tensor& x) {
    const int64_t samples = x.size(0), length = x.size(1), width = x.size(2);
    const at::Tensor qkv = qkv_->forward(x)
                               .view({samples, length, 3, heads_, width / heads_})
                               .permute({2, 0, 3, 1, 4});
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    const at::Tensor later = at::ones({length, length}, x.options().dtype(at::kBool)).triu(1);
    const at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(2, 3)) * scale;
    const at::Tensor seen = scores.masked_fill(later, -INFINITY).softmax(-1);
    return out_->forward(
        at::matmul(seen, qkv[2]).transpose(1, 2).reshape({samples, length, width}));
  }

 private:
  const int64_t heads_;
  torch::nn::Linear qkv_, out_;
};

class Block : public torch::nn::Module {
 public:
  Block(int64_t width, int64_t heads, double dropout)
      : dropout_(register_module("dropout", Dropout(dropout))),
        norm1_(register_module("norm1", make_norm(width))),
        attention_(register_module("attention", std::make_shared<Attention>(width, heads))),
        norm2_(register_module("norm2", make_norm(width))),
        fc1_(register_module("fc1", torch::nn::Linear(width, 4 * width))),
        fc2_(register_module("fc2", torch::nn::Linear(4 * width, width))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + dropout_(attention_->forward(norm1_->forward(input)));
    return x + dropout_(fc2_->forward(at::gelu(fc1_->forward(norm2_->forward(x)))));
  }

 private:
  Dropout dropout_;
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear fc1_, fc2_;
};

// The output head is the token embedding, so that this parameter is used twice.
class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const Options& options) {
    const int64_t width = options.integer("width");
    tokens_ = register_module("tokens", torch::nn::Embedding(options.integer("vocabulary"), width));
    positions_ =
        register_module("positions", torch::nn::Embedding(options.integer("context"), width));
    for (int64_t i = 1; i <= options.integer("layers"); ++i)
      blocks_.push_back(register_module(
          "block" + std::to_string(i),
          std::make_shared<Block>(width, options.integer("heads"), dropout_of(options))));
    norm_ = register_module("norm", make_norm(width));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = tokens_->forward(tokens);  // first: C++ leaves the order within a sum open
    x = x + positions_->forward(at::arange(tokens.size(1), tokens.options()));
    for (const std::shared_ptr<Block>& block : blocks_) x = block->forward(x);
    return at::linear(norm_->forward(x), tokens_->weight);
  }

 private:
  torch::nn::Embedding tokens_ = nullptr, positions_ = nullptr;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm norm_ = nullptr;
};

}  // namespace

std::unique_ptr<Model> build_embedding(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<Bigram>(options), dtype);
}

std::unique_ptr<Model> build_gpt(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<Gpt>(options), dtype);
}

}  // namespace lockstep
