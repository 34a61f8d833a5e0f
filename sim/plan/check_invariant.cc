#include <fmt/format.h>

#include <algorithm>

#include "scenarios/faults.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"
#include "sim/plan/lanes.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

// Mutants that act before a shard is computed, on what ranks exchange, or after all are averaged.
constexpr const char* kMutants[] = {
    "swap_shards",         "stale_shard",       "shift_shard",
    "duplicate_shard",     "drop_contribution", "flip_contribution",
    "double_contribution", "swap_contribution", "shift_contribution",
    "stale_contribution",  "flip_bit",          "wrong_divisor",
    "swap_launches",       "skip_wait",         "reuse_buffer",
    "unordered_launch",    "wrong_lr",          "own_batch_norm"};

class InvariantCheck : PartCheck {
 public:
  InvariantCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const Options& reducer = s_.reducer.options;
    if (!has_virtual_shards(s_)) {
      need(!reducer.has("virtual_shards"), "/reducer/virtual_shards",
           fmt::format("reducer \"{}\" has no virtual shards", s_.reducer.kind),
           "none, or reducer invariant");
      return;
    }
    need(reducer.has("virtual_shards"), "/reducer/virtual_shards",
         "missing key \"virtual_shards\" in /reducer of kind \"invariant\"",
         "a number of at least /world_size, such as 8");
    if (reducer.has("virtual_shards"))
      need(shards_of(s_) >= s_.world_size, "/reducer/virtual_shards",
           fmt::format("{} virtual shards leave none for some of {} ranks", shards_of(s_),
                       s_.world_size),
           fmt::format("at least {}", s_.world_size));
    options(reducer);
    training();
    model();
    for (size_t i = 0; i < s_.faults.size(); ++i) fault(i, s_.faults[i]);
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      need(std::any_of(std::begin(kMutants), std::end(kMutants),
                       [&](const char* kind) { return s_.mutants[i].kind == kind; }),
           fmt::format("/mutants/{}/kind", i),
           fmt::format("{} is a defect of sums over ranks, or of their shards; reducer invariant "
                       "has others",
                       s_.mutants[i].kind),
           "another reducer");
  }

 private:
  void refuse(bool bad, const char* pointer, const char* why, const char* allowed) {
    need(!bad, pointer, std::string("reducer invariant: ") + why, allowed);
  }

  void options(const Options& reducer) {
    for (const char* key : {"gradient_as_bucket_view", "static_graph"})
      need(!reducer.flag(key), std::string("/reducer/") + key,
           fmt::format("reducer \"invariant\" has no {}", key), "false");
    const std::string& split = s_.split.kind;
    refuse(split == "manual", "/split/kind",
           "rank 0 would scatter shards of ranks, not virtual ones", "another split");
    refuse(s_.split.options.has("batches_per_rank"), "/split/batches_per_rank",
           "every virtual shard is there in every step", "no batches_per_rank");
    refuse(split == "distributed" && !s_.split.options.flag("pad") &&
               !s_.split.options.flag("drop_last"),
           "/split/pad", "every virtual shard is there in every step", "true");
    refuse(s_.accumulate_sync != "last", "/accumulate_sync",
           "a step has one sum, over all virtual shards", "\"last\"");
    refuse(s_.join_divide_by.has_value(), "/join", "every virtual shard is there in every step",
           "no join");
    refuse(s_.model_averaging.kind != "none", "/model_averaging", "ranks do not part", "none");
  }

  void training() {
    refuse(report_every(s_.loss) > 0, "/loss/report_every",
           "losses of virtual shards are not reported", "0");
    refuse(s_.common_checks, "/common_checks", "losses of virtual shards are not reported",
           "false");
    refuse(s_.loss_scaling.kind != "none" && s_.loss_scaling.options.integer("overflow_step") > 0,
           "/loss_scaling/overflow_step", "a rank's loss is that of several virtual shards", "0");
    refuse(s_.device != "cpu", "/device", "virtual shards have been looked at on the cpu only",
           "\"cpu\"");
  }

  void model() {
    const Options& model = s_.model.options;
    refuse(model.has("checkpointing") && model.text("checkpointing") != "none",
           "/model/checkpointing", "how often a gradient becomes ready is not known", "\"none\"");
    const auto manifest = manifest_of(s_.model, s_.dtype);
    if (!manifest) return;
    refuse(std::any_of(manifest->parameters.begin(), manifest->parameters.end(),
                       [](const TensorSpec& parameter) { return parameter.sparse_gradient; }),
           "/model/sparse", "it adds dense gradients", "false");
    refuse(!manifest->buffers.empty() && !s_.reducer.options.flag("broadcast_buffers"),
           "/reducer/broadcast_buffers", "every rank gets the buffers of virtual shard 0", "true");
  }

  // What acts on this rank's process, time or links does so whatever the reducer.
  void fault(size_t index, const Fault& fault) {
    const std::string at = fmt::format("/faults/{}", index);
    need(class_of(fault) != FaultClass::misconfiguration, at + "/kind",
         fmt::format("{} is about what a rank does differently with its one shard",
                     to_word(fault.kind)),
         "a fault of another class, or another reducer");
  }
};

}  // namespace

void check_invariant(const Scenario& scenario, InputErrors* errors) {
  InvariantCheck(scenario, errors).run();
}

}  // namespace lockstep
