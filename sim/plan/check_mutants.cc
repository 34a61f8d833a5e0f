#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "scenarios/scenario.h"
#include "scenarios/split.h"
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

bool is_of_shards(const MutantSpec& mutant) {
  const Kinds kinds = {"swap_shards", "stale_shard", "shift_shard", "duplicate_shard"};
  return among(kinds, mutant.kind);
}

void check_mutants(const Scenario& scenario, InputErrors* errors) {
  MutantsCheck(scenario, errors).run();
}

namespace {

// Which keys beside `rank` and `step` a kind reads.
struct Keys {
  bool bucket = false, tensor = false, element = false, bit = false, other = false;
};

class DataMutantCheck : PartCheck {
 public:
  DataMutantCheck(const Scenario& scenario, const MutantSpec& mutant, const std::string& pointer,
                  InputErrors* errors)
      : PartCheck(scenario, errors), m_(mutant), at_(pointer) {}

  void run() {
    const auto keys = keys_of_kind();
    if (!keys) return;
    keys_of(*keys);
    if (m_.kind.starts_with("stale_"))
      need(!m_.step || *m_.step > 1, at_ + "/step",
           m_.kind + " in step 1, before which there is none", "a step from 2 on");
    if (m_.kind.ends_with("_gradient")) gradient();
    if (is_of_shards(m_) && m_.kind != "duplicate_shard") shards();
    if (m_.kind == "short_slice" || m_.kind == "reorder_sum")
      need(s_.reducer.kind != "sharded", at_ + "/kind",
           m_.kind + " with sums of which a rank gets a part", "another reducer than sharded");
    if (m_.kind == "reorder_sum")
      need(!m_.rank, at_ + "/rank", "reorder_sum on one rank, whose collective would be another's",
           "no rank");
    if (m_.kind == "drop_broadcast") broadcast();
    if (m_.kind == "own_ready_order") ready_order();
    if (m_.kind == "no_error_feedback") feedback();
    if (m_.kind == "lose_momentum") momentum();
    if (m_.kind == "same_masks") masks();
    if (m_.kind == "own_batch_norm") statistics();
  }

 private:
  // None: a kind that is checked elsewhere.
  std::optional<Keys> keys_of_kind() const {
    const std::string& kind = m_.kind;
    const bool shifts = kind.starts_with("shift_"), flips = kind.starts_with("flip_");
    if (kind == "flip_bit") return Keys{.bucket = true, .element = true, .bit = true};
    if (kind.ends_with("_gradient"))
      return Keys{.tensor = true, .element = shifts || flips, .bit = flips};
    if (kind == "drop_contribution") return std::nullopt;
    if (kind.ends_with("_contribution"))
      return Keys{.bucket = true, .element = shifts || flips, .bit = flips};
    if (kind == "short_slice") return Keys{.bucket = true, .element = true};
    if (kind == "reorder_sum" || kind == "swap_launches") return Keys{.bucket = true};
    if (is_of_shards(m_) && kind != "duplicate_shard") return Keys{.other = kind == "swap_shards"};
    const Kinds bare = {"drop_broadcast", "own_ready_order", "no_error_feedback",
                        "lose_momentum",  "same_masks",      "own_batch_norm"};
    if (among(bare, kind)) return Keys{};
    return std::nullopt;
  }

  void keys_of(const Keys& keys) {
    const auto only = [&](bool known, bool given, const char* key) {
      need(known || !given, fmt::format("{}/{}", at_, key),
           fmt::format("{} has no {}", m_.kind, key), fmt::format("no {}", key));
    };
    only(keys.bucket, m_.bucket.has_value(), "bucket");
    only(keys.tensor, m_.tensor.has_value(), "tensor");
    only(keys.element, m_.element.has_value(), "element");
    only(keys.bit, m_.bit.has_value(), "bit");
    only(keys.other, m_.other.has_value(), "other");
  }

  void gradient() {
    if (!m_.tensor) return;
    need(!is_frozen(s_, *m_.tensor), at_ + "/tensor",
         fmt::format("\"{}\" is not trained and has no gradient", *m_.tensor),
         "a parameter that is not in /frozen");
  }

  void shards() {
    need(s_.split.kind != "manual", at_ + "/kind",
         m_.kind + " with samples that rank 0 has scattered", "another split than manual");
    need(Split(s_).is_even(), at_ + "/kind", m_.kind + " cannot act here",
         "equally many batches on all ranks");
    if (m_.kind != "swap_shards") return;
    const bool two = m_.rank && m_.other && *m_.rank != *m_.other && *m_.other < shards_of(s_);
    need(two, at_ + "/other", "swap_shards without two ranks",
         fmt::format("rank and other: two ranks from 0 to {}", shards_of(s_) - 1));
  }

  void broadcast() {
    need(m_.rank.value_or(1) != 0, at_ + "/rank", "rank 0 has what it broadcasts",
         "a rank from 1 on");
    need(!m_.step, at_ + "/step", "drop_broadcast acts at construction", "no step");
  }

  void ready_order() {
    const bool ddp = s_.reducer.kind == "bucketed" || s_.reducer.kind == "c10d";
    const Options& reducer = s_.reducer.options;
    need(ddp && (reducer.flag("static_graph") || !reducer.flag("find_unused_parameters")),
         at_ + "/kind", "own_ready_order of buckets that are not laid out anew",
         "reducer bucketed or c10d, without find_unused_parameters or with static_graph");
    need(m_.rank.value_or(1) != 0, at_ + "/rank", "the order is rank 0's", "a rank from 1 on");
    need(!m_.step, at_ + "/step", "own_ready_order acts when the buckets are laid out anew",
         "no step");
    const auto manifest = manifest_of(s_.model, s_.dtype);
    need(!manifest || manifest->buffers.empty(), at_ + "/kind",
         "own_ready_order beside the broadcast of buffers", "a model without buffers");
  }

  void feedback() {
    const bool feeds =
        s_.comm_hook.kind == "powersgd" && s_.comm_hook.options.flag("error_feedback");
    need(feeds, at_ + "/kind", "no_error_feedback without any to lose",
         "comm hook powersgd with error_feedback");
    need(!m_.step, at_ + "/step", "no_error_feedback acts in every step", "no step");
  }

  void masks() {
    const bool may_draw = dropout_of(s_.model.options) > 0 || s_.model.kind == "registered";
    need(may_draw, at_ + "/kind", "same_masks in a model that draws nothing",
         "a dropout above 0, or a registered model");
    need(m_.rank.value_or(1) != 0, at_ + "/rank", "rank 0 draws for its own samples",
         "a rank from 1 on");
    need(s_.world_size > 1 && ranks_of(s_) == s_.world_size, at_ + "/kind",
         "same_masks needs another rank", "a world size of at least 2, not of replicas");
  }

  void statistics() {
    const Options& model = s_.model.options;
    const bool may_meet = s_.model.kind == "registered" ||
                          (model.has("norm") && model.text("norm").starts_with("sync"));
    need(may_meet, at_ + "/kind", "own_batch_norm in a model that asks no other rank",
         "norm sync or sync_equal, or a registered model");
    need(s_.world_size > 1 && ranks_of(s_) == s_.world_size, at_ + "/kind",
         "own_batch_norm needs another rank", "a world size of at least 2, not of replicas");
  }

  void momentum() {
    const bool resumes = s_.checkpoint.kind == "save_and_resume";
    need(resumes, at_ + "/kind", "lose_momentum without a resume in the run",
         "a checkpoint of kind save_and_resume");
    if (resumes)
      need(!m_.step || *m_.step == s_.checkpoint.options.integer("after_step"), at_ + "/step",
           "lose_momentum acts when the run resumes", "no step, or /checkpoint/after_step");
    need(s_.optimizer.kind != "sgd" || s_.optimizer.options.number("momentum") > 0, at_ + "/kind",
         "lose_momentum of an optimizer without state", "a momentum > 0, or another optimizer");
  }

  const MutantSpec& m_;
  const std::string at_;
};

}  // namespace

void check_data_mutant(const Scenario& scenario, const MutantSpec& mutant,
                       const std::string& pointer, InputErrors* errors) {
  DataMutantCheck(scenario, mutant, pointer, errors).run();
}

}  // namespace lockstep
