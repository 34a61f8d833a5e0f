#include <fmt/format.h>

#include <algorithm>

#include "scenarios/image_files.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"
#include "scenarios/split.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class SplitCheck : PartCheck {
 public:
  SplitCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const size_t before = errors_->size();
    has_sampler(s_.split) ? sampler() : batches();
    if (errors_->size() == before) enough_samples();
    if (errors_->size() == before) micro_batches();
  }

 private:
  bool divides() const { return s_.batch_size % shards_ == 0; }

  void batches() {
    const int64_t samples = s_.data.options.integer("samples");
    const Options& options = s_.split.options;
    const bool refuses = !options.has("remainder") || options.text("remainder") == "refuse";
    // Averaged plainly, ranks with fewer samples would count too much.
    if (!divides() && refuses && s_.averaging != "sample_weighted")
      fail(pointer_,
           fmt::format("a batch of {} samples cannot be split evenly over {} {}", s_.batch_size,
                       shards_, words_),
           fmt::format("{} that divides the batch", number_));
    if (samples % s_.batch_size != 0)
      fail("/data/samples",
           fmt::format("{} samples are not a multiple of the batch, {}", samples, s_.batch_size),
           fmt::format("a multiple of {}", s_.batch_size));
  }

  // A sampler's ranks have equally many samples, and batches of one size.
  void sampler() {
    if (!divides())
      fail(pointer_,
           fmt::format("a batch of {} samples is no batch of the same size on each of {} {}",
                       s_.batch_size, shards_, words_),
           fmt::format("{} that divides the batch", number_));
    if (s_.data.options.integer("samples") > kMostShuffled)
      fail("/data/samples", "no sampler of ours shuffles so many samples",
           fmt::format("at most {}", kMostShuffled));
  }

  void enough_samples() {
    const Split split(s_);
    if (split.least_shard() > 0) return;
    fail(pointer_,
         fmt::format("{} samples leave none for some of {} {}",
                     has_sampler(s_.split) ? s_.data.options.integer("samples") : s_.batch_size,
                     shards_, words_),
         fmt::format("a sample for every {}", word_));
  }

  void micro_batches() {
    for (const int64_t shard : Split(s_).shard_sizes()) {
      if (shard % s_.accumulate_steps == 0) continue;
      return fail("/accumulate_steps",
                  fmt::format("a {}'s {} samples cannot be split into {} equal micro-batches",
                              word_, shard, s_.accumulate_steps),
                  fmt::format("a divisor of {}", shard));
    }
  }

  const bool virtual_ = has_virtual_shards(s_);
  const int64_t shards_ = shards_of(s_);
  const char* pointer_ = virtual_ ? "/reducer/virtual_shards" : "/world_size";
  const char* word_ = virtual_ ? "virtual shard" : "rank";
  const char* words_ = virtual_ ? "virtual shards" : "ranks";
  const char* number_ = virtual_ ? "a number" : "a world size";
  static constexpr int64_t kMostShuffled = 100'000'000;  // see random_permutation()
};

// On one node nothing is wrong, which is a scenario too.
void check_batch_per_node(const Scenario& s, const MutantSpec& mutant, const std::string& pointer,
                          InputErrors* errors) {
  if (mutant.kind != "batch_per_node") return;
  const int64_t ranks = ranks_per_node(s.split);
  const auto need = [&](bool good, const std::string& message, const std::string& allowed) {
    if (!good) errors->push_back({"", 0, 0, pointer, message, allowed});
    return good;
  };
  if (!need(ranks > 0 && s.world_size % ranks == 0, "batch_per_node without whole nodes",
            fmt::format("a split.ranks_per_node that divides {}", s.world_size)))
    return;
  const int64_t batch = s.batch_size / ranks * s.world_size;
  need(s.split.kind != "manual" && s.batch_size % ranks == 0, "batch_per_node cannot act here",
       "another split than manual, and a batch that ranks_per_node divides");
  need(has_sampler(s.split) || s.data.options.integer("samples") % batch == 0,
       fmt::format("ranks that take batches of {} samples need whole ones", batch),
       fmt::format("a data.samples that is a multiple of {}", batch));
}

}  // namespace

// A defect that cannot show is a mistake of the scenario's.
void check_sample_mutant(const Scenario& scenario, const MutantSpec& mutant,
                         const std::string& pointer, InputErrors* errors) {
  const auto need = [&](const char* kind, bool good, const std::string& allowed) {
    if (mutant.kind == kind && !good)
      errors->push_back({"", 0, 0, pointer, fmt::format("{} cannot act here", kind), allowed});
  };
  need("plain_average",
       scenario.averaging == "sample_weighted" && Split(scenario).shard_sizes().size() > 1,
       "averaging sample_weighted over shards of different sizes");
  need("no_set_epoch",
       shuffles_each_epoch(scenario.split) && scenario.steps > Split(scenario).steps_per_epoch(),
       "a sampler that shuffles each epoch, and two epochs");
  need("unordered_delivery",
       scenario.steps > 1 && Split(scenario).steps_per_epoch() > 1 &&
           loader_workers(scenario.data) > 1,
       "several batches, and data.workers of 2 or more");
  for (const char* kind : {"duplicate_shard", "unordered_delivery"})
    need(kind, Split(scenario).is_even(), "equally many batches on all ranks");
  need("no_shuffle", scenario.split.kind == "distributed" && scenario.split.options.flag("shuffle"),
       "a distributed split that shuffles");
  check_batch_per_node(scenario, mutant, pointer, errors);
}

void check_split(const Scenario& scenario, InputErrors* errors) {
  SplitCheck(scenario, errors).run();
}

namespace {

class JoinCheck : PartCheck {
 public:
  JoinCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (!batches_per_rank()) return;
    if (s_.join_divide_by)
      join();
    else if (!Split(s_).is_even())
      uneven();
  }

 private:
  bool batches_per_rank() {
    const Options& split = s_.split.options;
    if (!split.has("batches_per_rank")) return true;
    const size_t before = errors_->size();
    const std::vector<int64_t> batches = split.integers("batches_per_rank");
    const auto given = static_cast<int64_t>(batches.size());
    need(given == s_.world_size, "/split/batches_per_rank",
         fmt::format("/split/batches_per_rank has {} numbers for {} ranks", given, s_.world_size),
         fmt::format("{} numbers", s_.world_size));
    const int64_t most = *std::max_element(batches.begin(), batches.end());
    const int64_t samples = s_.data.options.integer("samples");
    need(samples / s_.batch_size >= most, "/split/batches_per_rank",
         fmt::format("/split/batches_per_rank asks for {} batches of {}, but there are {} samples",
                     most, s_.batch_size, samples),
         fmt::format("numbers up to {}", samples / s_.batch_size));
    return errors_->size() == before;
  }

  void join() {
    const Options& reducer = s_.reducer.options;
    const std::string& kind = s_.reducer.kind;
    need(kind == "bucketed" || kind == "c10d", "/join",
         fmt::format("reducer \"{}\" does not join", kind), "reducer bucketed or c10d");
    need(!reducer.flag("static_graph"), "/reducer/static_graph",
         "a static graph with join: a rank without a batch knows no graph", "false");
    const int64_t epoch = Split(s_).steps_per_epoch();
    need(s_.steps % epoch == 0, "/steps",
         fmt::format("/steps is {}, but ranks join at the end of an epoch of {} steps", s_.steps,
                     epoch),
         fmt::format("a multiple of {}", epoch));
    comm_hook();
    alone();
    need(s_.checkpoint.kind == "none", "/checkpoint", "a checkpoint with join", "no checkpoint");
    need(!s_.golden, "/golden", "a stored golden with join", "no golden");
  }

  // What the others need of a rank in every step, and a rank without a batch does not do.
  void alone() {
    need(s_.accumulate_sync == "last" || s_.accumulate_steps == 1, "/accumulate_sync",
         "micro-batches synchronized each, with join: a rank without a batch shadows one average a "
         "step",
         "\"last\"");
    need(!shares_optimizer(s_), "/optimizer_sharding/kind",
         "a shared-out optimizer with join: a rank without a batch updates nobody's weights",
         "\"none\"");
    const Options& model = s_.model.options;
    need(!model.has("norm") || !model.text("norm").starts_with("sync"), "/model/norm",
         "normalization over all ranks with join: a rank without a batch has nothing to normalize",
         "another norm");
  }

  void comm_hook() {
    const std::string& hook = s_.comm_hook.kind;
    const bool averages = hook == "none" || hook == "allreduce" || hook == "fp16" || hook == "bf16";
    need(averages, "/comm_hook/kind",
         fmt::format("comm hook \"{}\" does not just average: ranks without a batch are not zero "
                     "to it",
                     hook),
         "none, allreduce, fp16 or bf16");
    need(hook == "none" || s_.join_divide_by == "initial_world_size", "/join/divide_by",
         fmt::format("comm hook \"{}\" divides by all ranks itself", hook),
         "\"initial_world_size\"");
  }

  void uneven() {
    const int64_t epoch = Split(s_).steps_per_epoch();
    need(s_.steps <= epoch, "/steps",
         fmt::format("without join a rank with fewer batches stops in the first epoch, of {} steps",
                     epoch),
         fmt::format("at most {}, or join", epoch));
  }
};

}  // namespace

void check_join(const Scenario& scenario, InputErrors* errors) {
  JoinCheck(scenario, errors).run();
}

namespace {

class LocalStepsCheck : PartCheck {
 public:
  LocalStepsCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (s_.model_averaging.kind != "none") averaging();
    if (s_.comm_hook.kind == "post_local_sgd") local_gradients();
    if (!has_own_states(s_)) return;
    need(s_.checkpoint.kind == "none", "/checkpoint", "a checkpoint holds the state of one rank",
         "no checkpoint, or ranks that do not part");
    need(!s_.golden, "/golden", "a stored golden holds the state of one rank", "no golden");
    need(!s_.common_checks, "/common_checks", "common checks know one state of all ranks", "false");
  }

 private:
  void averaging() {
    const int64_t warmup = s_.model_averaging.options.integer("warmup_steps");
    need(warmup < s_.steps, "/model_averaging/warmup_steps",
         fmt::format("/model_averaging/warmup_steps is {}: no step of {} is averaged", warmup,
                     s_.steps),
         fmt::format("less than {}", s_.steps));
    need(!s_.join_divide_by, "/model_averaging", "model averaging with join", "no join");
  }

  void local_gradients() {
    const Options& reducer = s_.reducer.options;
    need(!reducer.flag("find_unused_parameters"), "/reducer/find_unused_parameters",
         "a rank's own gradients, where others may use parameters that it does not", "false");
    need(s_.accumulate_sync == "last", "/accumulate_sync",
         "a hook counts the backward passes that it averages, several a step, and start_step is a "
         "step",
         "\"last\"");
    const auto manifest = manifest_of(s_.model, s_.dtype);
    need(!manifest || manifest->buffers.empty() || reducer.flag("broadcast_buffers"),
         "/reducer/broadcast_buffers", "local steps, in which buffers part as well", "true");
  }
};

}  // namespace

void check_local_steps(const Scenario& scenario, InputErrors* errors) {
  LocalStepsCheck(scenario, errors).run();
}

namespace {

size_t length_of(const OptionValue& list) {
  const auto* whole = std::get_if<std::vector<int64_t>>(&list);
  return whole != nullptr ? whole->size() : std::get<std::vector<double>>(list).size();
}

void check_channels(const Part& data, InputErrors* errors) {
  const auto channels = static_cast<size_t>(image_shape(data.kind).channels);
  for (const char* key : {"mean", "std"}) {
    const size_t length = length_of(data.options.all().find(key)->second);
    if (length == 1 || length == channels) continue;
    InputError error;
    error.pointer = fmt::format("/data/{}", key);
    error.message =
        fmt::format("{} has {} numbers, but \"{}\" has images of {} channel{}", error.pointer,
                    length, data.kind, channels, channels == 1 ? "" : "s");
    error.allowed = channels == 1 ? "1 number" : fmt::format("1 or {} numbers", channels);
    errors->push_back(std::move(error));
  }
}

}  // namespace

void check_files(const Scenario& scenario, InputErrors* errors) {
  if (is_image_file_kind(scenario.data.kind)) check_channels(scenario.data, errors);
}

}  // namespace lockstep
