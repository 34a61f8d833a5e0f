#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "scenarios/base/check.h"
#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/module_of.h"
#include "scenarios/workloads/recompute.h"

namespace lockstep {
namespace {

// none: both branches see every sample. always: the right one sees none, on any rank. routed: each
// sample takes the branch of the sign of its feature 0, so that a rank may leave one untouched.
class Branches : public torch::nn::Module {
 public:
  explicit Branches(const Options& options)
      : unused_(options.text("unused")),
        out_(options.integer("out_features")),
        trunk_(register_module(
            "trunk", torch::nn::Linear(options.integer("in_features"), options.integer("hidden")))),
        left_(register_module("left", torch::nn::Linear(options.integer("hidden"), out_))),
        right_(register_module("right", torch::nn::Linear(options.integer("hidden"), out_))),
        checkpointing_(checkpointing_of(options)) {}

  at::Tensor forward(const at::Tensor& given) {
    const at::Tensor input = as_rows(given);
    const at::Tensor x = at::tanh(trunk_->forward(input));
    if (unused_ == "always") return run(run_left_, x);
    if (unused_ == "routed") return routed(x, input.select(1, 0) > 0);
    LOCKSTEP_CHECK(unused_ == "none", "no such use of branches: " + unused_);
    const at::Tensor left = run(run_left_, x);  // first: C++ leaves the order within a sum open
    return left + run(run_right_, x);
  }

 private:
  at::Tensor routed(const at::Tensor& x, const at::Tensor& to_left) {
    at::Tensor output = at::zeros({x.size(0), out_}, x.options());
    const auto add = [&](const Segment& branch, const at::Tensor& chosen) {
      const at::Tensor rows = chosen.nonzero().squeeze(1);
      if (rows.numel() > 0)
        output = output.index_copy(0, rows, run(branch, x.index_select(0, rows)));
    };
    add(run_left_, to_left);
    add(run_right_, to_left.logical_not());
    return output;
  }

  at::Tensor run(const Segment& branch, const at::Tensor& x) const {
    return checkpointed(checkpointing_, branch, x);
  }
  static Segment segment_of(torch::nn::Linear& branch) {
    return {[&branch](const at::Tensor& x) { return branch->forward(x); }, branch->parameters()};
  }

  const std::string unused_;
  const int64_t out_;
  torch::nn::Linear trunk_, left_, right_;
  const std::string checkpointing_;  // of the branches
  const Segment run_left_ = segment_of(left_), run_right_ = segment_of(right_);
};

}  // namespace

std::unique_ptr<Model> build_branches(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<Branches>(options), dtype);
}

}  // namespace lockstep
