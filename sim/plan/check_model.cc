#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "scenarios/base/text.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class WrappingCheck : PartCheck {
 public:
  WrappingCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {
    const auto model = manifest_of(s_.model, s_.dtype);
    known_ = model != nullptr;
    if (!known_) return;
    for (const TensorSpec& parameter : model->parameters) parameters_.push_back(parameter.name);
    for (const TensorSpec& buffer : model->buffers) buffers_.push_back(buffer.name);
  }

  void run() {
    if (s_.reducer.options.text("buffer_hook") != "none") buffer_hook();
    if (!s_.ignored.empty()) ignored();
    if (!s_.wrapped_modules.empty()) wrapped_modules();
    need(!s_.reducer.options.flag("average_ignored") || any_ignored_is_trained(),
         "/reducer/average_ignored", "no parameter that is trained is ignored",
         "false, or such a parameter in /ignored");
    if (s_.model.options.has("checkpointing") && s_.model.options.text("checkpointing") != "none")
      need(s_.device == "cpu" && s_.compute.kind == "real", "/model/checkpointing",
           "activation checkpointing of layers that are not computed on the cpu", "\"none\"");
  }

 private:
  // What all three need: DDP's way, gradients of one kind on all ranks, nobody missing.
  void ddp_alone(const std::string& pointer, const std::string& what) {
    const std::string& kind = s_.reducer.kind;
    need(kind == "bucketed" || kind == "c10d", pointer,
         fmt::format("reducer \"{}\" has no {}", kind, what), "reducer bucketed or c10d");
    need(!s_.join_divide_by, pointer, fmt::format("{} with join", what), "no join");
    need(!has_own_states(s_), pointer, fmt::format("{} with ranks that part", what),
         "no model averaging, no post_local_sgd");
  }

  void buffer_hook() {
    const std::string pointer = "/reducer/buffer_hook";
    ddp_alone(pointer, "buffer hook");
    need(s_.reducer.options.flag("broadcast_buffers"), pointer,
         "a hook in place of a broadcast that is off", "\"none\", or broadcast_buffers true");
    need(!known_ || !buffers_.empty(), pointer, "the model has no buffers", "\"none\"");
    need(s_.accumulate_steps == 1 || s_.reducer.options.text("buffer_hook") != kAfter, pointer,
         "buffers that are averaged after the first of several forwards",
         "average_before_forward, or accumulate_steps 1");
  }

  void ignored() {
    ddp_alone("/ignored", "parameters that are left alone");
    need(!shares_optimizer(s_), "/ignored", "the optimizer is shared out, with all parameters",
         "no optimizer_sharding");
    if (!known_) return;
    std::vector<std::string> names = parameters_;
    names.insert(names.end(), buffers_.begin(), buffers_.end());
    all_name_something("/ignored", s_.ignored, names);
    need(std::any_of(
             parameters_.begin(), parameters_.end(),
             [&](const auto& name) { return !is_frozen(s_, name) && !is_ignored(s_, name); }),
         "/ignored", "nothing is left to the reducer", "fewer names");
  }

  bool any_ignored_is_trained() const {
    return !known_ || std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& name) {
      return !is_frozen(s_, name) && is_ignored(s_, name);
    });
  }

  void wrapped_modules() {
    const std::string pointer = "/wrapped_modules";
    ddp_alone(pointer, "modules with a reducer each");
    if (!known_) return;
    all_name_something(pointer, s_.wrapped_modules, parameters_);
    for (const auto* tensors : {&parameters_, &buffers_})
      for (const std::string& name : *tensors) once(name);
    for (size_t i = 0; i < s_.wrapped_modules.size(); ++i) trains_something(i);
  }

  void once(const std::string& tensor) {
    const auto holders =
        std::count_if(s_.wrapped_modules.begin(), s_.wrapped_modules.end(),
                      [&](const std::string& module) { return is_named_in({module}, tensor); });
    need(holders == 1, "/wrapped_modules",
         fmt::format("{} is in {} of these modules", tensor, holders),
         "modules that together hold every parameter and buffer once");
  }

  void trains_something(size_t i) {
    need(std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const auto& name) {
                       return is_named_in({s_.wrapped_modules[i]}, name) && !is_frozen(s_, name) &&
                              !is_ignored(s_, name);
                     }),
         fmt::format("/wrapped_modules/{}", i),
         fmt::format("\"{}\" has no parameter for its reducer", s_.wrapped_modules[i]),
         "modules of which something is trained");
  }

  void all_name_something(const std::string& pointer, const std::vector<std::string>& given,
                          const std::vector<std::string>& names) {
    for (size_t i = 0; i < given.size(); ++i)
      need(std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return is_named_in({given[i]}, name); }),
           fmt::format("{}/{}", pointer, i), fmt::format("the model has no \"{}\"", given[i]),
           fmt::format("{}, or what stands before a dot in one of them", fmt::join(names, ", ")));
  }

  static constexpr const char* kAfter = "average_after_forward";
  bool known_ = false;
  std::vector<std::string> parameters_, buffers_;
};

}  // namespace

void check_wrapping(const Scenario& scenario, InputErrors* errors) {
  WrappingCheck(scenario, errors).run();
}

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
    orders();
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

  void orders() {
    const Options& model = s_.model.options;
    if (model.has("first") && model.text("first") != "left")
      need(model.text("unused") == "none", "/model/first",
           "an order of branches not all of which run", "\"left\", or /model/unused \"none\"");
    if (!model.has("repeat") || model.integer("repeat") == 1) return;
    std::vector<int64_t> widths = model.integers("hidden");
    widths.push_back(model.integer("out_features"));
    need(std::adjacent_find(widths.begin(), widths.end()) != widths.end(), "/model/repeat",
         "no layer after the first has as many outputs as inputs",
         "1, or two equal widths in a row");
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

namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = fmt::format("[{}]", fmt::join(shape, ", "));
  for (size_t at = text.find("-1"); at != std::string::npos; at = text.find("-1"))
    text.replace(at, 2, "any");
  return text;
}

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

// -1 fits any size; a wanted shape of one size takes any sample of so many numbers.
bool fits(const std::vector<int64_t>& given, const std::vector<int64_t>& wanted) {
  if (wanted.size() == 1 && wanted[0] >= 0) return numel(given) == wanted[0];
  bool good = given.size() == wanted.size();
  for (size_t i = 0; good && i < given.size(); ++i) good = wanted[i] < 0 || given[i] == wanted[i];
  return good;
}

class ShapeCheck : PartCheck {
 public:
  ShapeCheck(const Scenario& scenario, const DataShape& data, const ModelManifest& model,
             InputErrors* errors)
      : PartCheck(scenario, errors), data_(data), model_(model) {}

  void run() {
    const Options& model = s_.model.options;
    const Options& data = s_.data.options;
    if (data.has("features") && model.has("in_features"))
      same("/data/features", data.integer("features"), "in_features");
    else
      input();
    if (s_.loss.kind == "cross_entropy")
      classes();
    else if (data.has("targets") && model.has("out_features"))
      same("/data/targets", data.integer("targets"), "out_features");
    else
      numbers();
  }

 private:
  void same(const std::string& pointer, int64_t value, const char* of_model) {
    const int64_t wanted = s_.model.options.integer(of_model);
    if (value == wanted) return;
    fail(pointer, fmt::format("{} is {}, but /model/{} is {}", pointer, value, of_model, wanted),
         fmt::format("{}", wanted));
  }

  void input() {
    if ((data_.vocabulary > 0) != (model_.vocabulary > 0))
      return fail("/data/kind",
                  fmt::format("data \"{}\" gives {}, but model \"{}\" takes {}", s_.data.kind,
                              data_.vocabulary > 0 ? "tokens" : "numbers", s_.model.kind,
                              model_.vocabulary > 0 ? "tokens" : "numbers"),
                  "a data set that suits the model");
    if (data_.vocabulary > model_.vocabulary)
      fail("/data/vocabulary",
           fmt::format("/data/vocabulary is {}, but /model/vocabulary is {}", data_.vocabulary,
                       model_.vocabulary),
           fmt::format("at most {}", model_.vocabulary));
    if (!fits(data_.input, model_.input))
      fail("/data",
           fmt::format("a sample is {}, but model \"{}\" takes {}", text_of(data_.input),
                       s_.model.kind, text_of(model_.input)),
           text_of(model_.input));
  }

  void classes() {
    if (data_.classes == 0)
      return fail("/loss/kind",
                  fmt::format("loss cross_entropy needs classes, but data \"{}\" has numbers",
                              s_.data.kind),
                  "\"mse\", or data with classes");
    const int64_t known = model_.output.back();
    if (data_.classes > known)
      fail("/data/classes",
           fmt::format("targets have {} classes, but the model tells {}", data_.classes, known),
           fmt::format("at most {}", known));
    if (data_.target.size() + 1 != model_.output.size())
      fail("/model/kind",
           fmt::format("the target of a sample is {}, but model \"{}\" gives {}",
                       text_of(data_.target), s_.model.kind, text_of(model_.output)),
           "a model that gives classes for every target");
  }

  void numbers() {
    if (data_.classes > 0)
      return fail("/loss/kind",
                  fmt::format("loss {} needs numbers, but data \"{}\" has classes", s_.loss.kind,
                              s_.data.kind),
                  "\"cross_entropy\", or data with numbers");
    if (data_.target != model_.output)
      fail("/data",
           fmt::format("the target of a sample is {}, but model \"{}\" gives {}",
                       text_of(data_.target), s_.model.kind, text_of(model_.output)),
           text_of(model_.output));
  }

  const DataShape& data_;
  const ModelManifest& model_;
};

}  // namespace

void check_shapes(const Scenario& scenario, InputErrors* errors) {
  const auto data = data_shape(scenario.data);
  const auto model = manifest_of(scenario.model, scenario.dtype);
  if (data && model) ShapeCheck(scenario, *data, *model, errors).run();
}

}  // namespace lockstep
