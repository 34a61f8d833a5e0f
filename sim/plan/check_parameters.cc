#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "scenarios/scenario.h"
#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class ParameterCheck : PartCheck {
 public:
  ParameterCheck(const Scenario& scenario, const ModelManifest& model, InputErrors* errors)
      : PartCheck(scenario, errors), model_(model) {}

  void run() {
    if (!s_.frozen.empty()) frozen();
    if (s_.model.options.has("float64_layers")) float64_layers();
    if (s_.model.options.has("memory_format")) memory_format();
    if (dropout_of(s_.model.options) > 0) dropout();
    const auto is_sparse = [](const TensorSpec& parameter) { return parameter.sparse_gradient; };
    if (std::any_of(model_.parameters.begin(), model_.parameters.end(), is_sparse)) sparse();
  }

 private:
  void float64_layers() {
    const auto layers = static_cast<int64_t>(s_.model.options.integers("hidden").size()) + 1;
    for (const int64_t number : s_.model.options.integers("float64_layers"))
      need(number <= layers, "/model/float64_layers", fmt::format("there is no layer {}", number),
           fmt::format("layers from 1 to {}", layers));
  }

  void dropout() {
    need(s_.device == "cpu" && s_.compute.kind == "real", "/model/dropout",
         "dropout in layers that are not computed on the cpu", "0");
    const Options& model = s_.model.options;
    need(!model.has("checkpointing") || model.text("checkpointing") == "none", "/model/dropout",
         "masks that activation checkpointing would draw once more, and others", "0");
  }

  void memory_format() {
    const std::string& format = s_.model.options.text("memory_format");
    if (format == "contiguous") return;
    const std::string pointer = "/model/memory_format";
    need(s_.device == "cpu" && s_.compute.kind == "real", pointer,
         fmt::format("weights that are {} in layers that are not computed on the cpu", format),
         "\"contiguous\"");
    need(format != "sliced" || !shares_optimizer(s_), pointer,
         "an optimizer that is shared out cannot cut weights with gaps in memory into pieces",
         "\"contiguous\" or \"transposed\"");
  }

  void frozen() {
    std::vector<std::string> names;
    bool any_trained = false;
    for (const TensorSpec& parameter : model_.parameters) {
      names.push_back(parameter.name);
      any_trained = any_trained || !is_frozen(s_, parameter.name);
    }
    for (size_t i = 0; i < s_.frozen.size(); ++i) {
      Scenario alone;
      alone.frozen = {s_.frozen[i]};
      need(std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return is_frozen(alone, name); }),
           fmt::format("/frozen/{}", i),
           fmt::format("the model has no parameter \"{}\"", s_.frozen[i]),
           fmt::format("{}, or what stands before a dot in one of them", fmt::join(names, ", ")));
    }
    need(any_trained, "/frozen", "nothing is left to train", "fewer names");
  }

  // What LibTorch cannot do with sparse gradients, or, momentum, what would grow without end: a
  // buffer that keeps every row of every step.
  void sparse() {
    const std::string& kind = s_.optimizer.kind;
    const Options& options = s_.optimizer.options;
    need(kind == "sgd" || kind == "adagrad", "/optimizer/kind",
         fmt::format("LibTorch's {} does not take sparse gradients", kind), "sgd or adagrad");
    if (kind == "sgd")
      need(options.number("momentum") == 0, "/optimizer/momentum",
           "the momentum of a sparse gradient grows by its rows in every step", "0");
    need(options.number("weight_decay") == 0, "/optimizer/weight_decay",
         "LibTorch adds no weight decay to a sparse gradient", "0");
    need(s_.clipping.kind == "none", "/clipping",
         "LibTorch's clip_grad_norm_ and clip_grad_value_ do not clip a sparse gradient", "none");
    need(s_.comm_hook.kind == "none", "/comm_hook/kind",
         "a comm hook takes dense buckets, and the model has a sparse gradient", "none");
    need(!s_.join_divide_by, "/join",
         "a rank without a batch shadows dense buckets, and the model has a sparse gradient",
         "no join, or /model/sparse false");
  }

  const ModelManifest& model_;
};

}  // namespace

void check_parameters(const Scenario& scenario, InputErrors* errors) {
  const auto model = manifest_of(scenario.model, scenario.dtype);
  if (model) ParameterCheck(scenario, *model, errors).run();
}

}  // namespace lockstep
