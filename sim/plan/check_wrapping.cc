#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "scenarios/base/text.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"
#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class WrappingCheck : PartCheck {
 public:
  WrappingCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {
    const auto model = manifest_of(s_.model, s_.dtype);
    known_ = model.has_value();
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

}  // namespace lockstep
