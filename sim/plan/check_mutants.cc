#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

using Kinds = std::vector<std::string_view>;

bool among(const Kinds& kinds, const std::string& kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

// What these do, they do before the first step.
const Kinds kAtConstruction = {
    "replace_parameter", "reassign_buffer", "move_parameter", "tie_parameters", "other_buffers",
    "ignore_parameter",  "hook_path",       "cast_early",     "sum_undivided",  "divide_twice"};
// A comm hook in place of the reducer's own arithmetic.
const Kinds kHooks = {"hook_path", "cast_early", "skip_hook", "sum_undivided", "divide_twice"};
// They act on hooks or calls that only these reducers have.
const Kinds kOfDdp = {"bypass_reducer",    "grad_without_hooks", "second_backward",
                      "second_forward",    "skip_finalize",      "clone_gradient",
                      "replace_parameter", "move_parameter",     "ignore_parameter",
                      "forget_used",       "reassign_buffer"};

// Waits that only streams have.
const Kinds kOfStreams = {"skip_gradient_wait", "skip_copy_wait", "skip_result_wait"};

class MutantsCheck : PartCheck {
 public:
  MutantsCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      mutant(fmt::format("/mutants/{}", i), s_.mutants[i]);
  }

 private:
  void mutant(const std::string& at, const MutantSpec& mutant) {
    const std::string& kind = mutant.kind;
    const Options& reducer = s_.reducer.options;
    const bool ddp = s_.reducer.kind == "bucketed" || s_.reducer.kind == "c10d";
    const auto only = [&](bool good, const std::string& allowed) {
      need(good, at + "/kind", fmt::format("{} cannot act here", kind), allowed);
    };
    need(!mutant.step || !among(kAtConstruction, kind), at + "/step",
         fmt::format("{} acts before the first step", kind), "no step");
    if (among(kHooks, kind))
      only(ddp && s_.comm_hook.kind == "none", "reducer bucketed or c10d, without a comm hook");
    if (among(kOfDdp, kind)) only(ddp, "reducer bucketed or c10d");
    if (among(kOfStreams, kind))
      only(s_.streams == "late" || (s_.device == "cuda" && s_.communicator.kind == "gloo"),
           "streams \"late\", or device cuda with communicator gloo");
    if (kind == "skip_result_wait")
      only(s_.reducer.kind != "c10d",
           "another reducer than c10d, whose futures wait by themselves");
    if (kind == "skip_finalize") only(s_.reducer.kind == "bucketed", "reducer bucketed");
    if (kind == "clone_gradient")
      only(reducer.flag("gradient_as_bucket_view"), "gradient_as_bucket_view true");
    if (kind == "zero_for_none" || kind == "forget_used")
      only(reducer.flag("find_unused_parameters"), "find_unused_parameters true");
    if (kind == "lose_accumulated" || kind == "undivided_micro_batches")
      only(s_.accumulate_steps > 1, "accumulate_steps of 2 or more");
    if (kind == "ignore_parameter" || kind == "tie_parameters")
      need(mutant.tensor.has_value(), at, kind + " without its parameter", "a key tensor");
    if (mutant.tensor) tensor(at + "/tensor", mutant);
    if (const auto manifest = manifest_of(s_.model, s_.dtype)) of_model(*manifest, mutant, only);
  }

  void of_model(const ModelManifest& manifest, const MutantSpec& mutant,
                const std::function<void(bool, const std::string&)>& only) {
    if (of_buffers(mutant)) only(!manifest.buffers.empty(), "a model with buffers");
    if (mutant.kind != "tie_parameters" || !mutant.tensor) return;
    const auto& parameters = manifest.parameters;
    const auto tied = std::find_if(parameters.begin(), parameters.end(),
                                   [&](auto& known) { return known.name == *mutant.tensor; });
    only(tied == parameters.end() ||
             std::count_if(parameters.begin(), parameters.end(),
                           [&](auto& known) { return known.shape == tied->shape; }) > 1,
         "two parameters of one shape");
  }

  static bool of_buffers(const MutantSpec& mutant) {
    return mutant.kind == "reassign_buffer" || mutant.kind == "other_buffers";
  }

  void tensor(const std::string& pointer, const MutantSpec& mutant) {
    const auto manifest = manifest_of(s_.model, s_.dtype);
    if (!manifest) return;
    std::string names;
    for (const TensorSpec& known : of_buffers(mutant) ? manifest->buffers : manifest->parameters) {
      if (known.name == *mutant.tensor) return;
      names += (names.empty() ? "" : ", ") + known.name;
    }
    fail(pointer,
         fmt::format("the model has no {} \"{}\"", of_buffers(mutant) ? "buffer" : "parameter",
                     *mutant.tensor),
         names);
  }
};

}  // namespace

void check_mutants(const Scenario& scenario, InputErrors* errors) {
  MutantsCheck(scenario, errors).run();
}

}  // namespace lockstep
