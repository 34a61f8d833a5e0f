#include <fmt/format.h>

#include <filesystem>

#include "scenarios/split.h"
#include "sim/plan/lanes.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class SharingCheck : PartCheck {
 public:
  SharingCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const bool zero = s_.optimizer_sharding.kind == "zero";
    need(!zero || (s_.reducer.kind != "sharded" && s_.reducer.kind != "data_parallel" &&
                   s_.reducer.kind != "none"),
         "/optimizer_sharding/kind",
         fmt::format("reducer \"{}\" leaves no averaged gradients on all ranks", s_.reducer.kind),
         "reducer bucketed, c10d, flat, per_parameter or manual");
    need(!zero || s_.frozen.empty() || s_.optimizer.kind != "adagrad", "/frozen",
         "adagrad has a state of frozen parameters too, which would be no rank's", "[]");
    if (s_.reducer.kind == "sharded") sharded();
    if (s_.reducer.kind == "data_parallel") data_parallel();
    need(s_.reducer.kind != "none" || s_.mutants.empty(), "/mutants",
         "with reducer \"none\" there is no lane that could find a defect", "[]");
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      mutant(fmt::format("/mutants/{}/kind", i), s_.mutants[i].kind);
  }

 private:
  // A rank holds the averaged gradients of its own part only.
  void sharded() {
    need(s_.clipping.kind != "norm", "/clipping/kind",
         "with reducer \"sharded\" no rank knows the norm of all averaged gradients",
         "\"none\" or \"value\"");
    need(s_.loss_scaling.kind == "none", "/loss_scaling/kind",
         "with reducer \"sharded\" no rank sees whether all averaged gradients are finite",
         "\"none\"");
    need(s_.accumulate_sync == "last", "/accumulate_sync",
         "with reducer \"sharded\" a rank adds to the averages of its own part only, and the next "
         "micro-batch's average divides them again",
         "\"last\"");
  }

  void data_parallel() {
    const std::string& algorithm = s_.communicator.options.text("algorithm");
    need(s_.communicator.kind == "local", "/communicator/kind",
         fmt::format(
             "reducer \"data_parallel\" is one process, communicator \"{}\" connects several",
             s_.communicator.kind),
         "\"local\"");
    need(
        algorithm == "rank_order", "/communicator/algorithm",
        fmt::format("reducer \"data_parallel\" adds gradients replica after replica, not as \"{}\"",
                    algorithm),
        "\"rank_order\"");
    need(s_.split.kind != "manual", "/split/kind",
         "reducer \"data_parallel\" scatters the batch itself", "another split");
  }

  void mutant(const std::string& pointer, const std::string& kind) {
    need(kind != "drop_weights" || shares_optimizer(s_), pointer,
         "drop_weights without a sharded optimizer", "optimizer_sharding zero, or reducer sharded");
    const bool of_groups = kind != "wrong_divisor" && kind != "duplicate_shard" &&
                           kind != "wrong_lr" && kind != "stale_momentum";
    need(s_.reducer.kind != "data_parallel" || !of_groups, pointer,
         fmt::format("{} cannot act in one process", kind),
         "wrong_divisor, duplicate_shard, wrong_lr or stale_momentum");
  }
};

}  // namespace

void check_sharing(const Scenario& scenario, InputErrors* errors) {
  SharingCheck(scenario, errors).run();
}

namespace {

class TrainingCheck : PartCheck {
 public:
  TrainingCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    optimizer();
    lr_schedule();
    if (s_.loss_scaling.kind != "none") loss_scaling();
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      mutant(fmt::format("/mutants/{}/kind", i), s_.mutants[i].kind);
  }

 private:
  void optimizer() {
    const Options& options = s_.optimizer.options;
    if (s_.optimizer.kind != "sgd" || !options.flag("nesterov")) return;
    need(options.number("momentum") > 0 && options.number("dampening") == 0, "/optimizer/nesterov",
         "nesterov needs a momentum and no dampening", "momentum > 0 and dampening 0");
  }

  void lr_schedule() {
    if (s_.lr_schedule.kind != "cosine") return;
    const double lowest = s_.lr_schedule.options.number("min_lr");
    const double lr = s_.optimizer.options.number("lr");
    need(lowest <= lr, "/lr_schedule/min_lr",
         fmt::format("/lr_schedule/min_lr is {}, but /optimizer/lr is {}", lowest, lr),
         fmt::format("at most {}", lr));
  }

  void loss_scaling() {
    const Options& options = s_.loss_scaling.options;
    for (const std::string key : {"initial_scale", "growth_factor", "backoff_factor"}) {
      const double value = options.number(key);
      need(is_power_of_two(value), "/loss_scaling/" + key,
           fmt::format("/loss_scaling/{} is {}", key, value), "a power of two");
    }
    need(options.number("backoff_factor") < 1, "/loss_scaling/backoff_factor",
         "a backoff_factor of 1 never lowers the scale", "a power of two below 1");
    const int64_t step = options.integer("overflow_step");
    need(step <= s_.steps, "/loss_scaling/overflow_step", fmt::format("there is no step {}", step),
         fmt::format("a step up to {}, or 0", s_.steps));
    const int64_t rank = options.integer("overflow_rank");
    need(rank < s_.world_size, "/loss_scaling/overflow_rank",
         fmt::format("there is no rank {}", rank),
         fmt::format("a rank from 0 to {}", s_.world_size - 1));
  }

  void mutant(const std::string& pointer, const std::string& kind) {
    if (kind == "clip_before_sum") {
      need(s_.clipping.kind != "none", pointer, "clip_before_sum without clipping",
           "a clipping of kind norm or value");
      need(s_.clipping.kind != "norm" || s_.reducer.kind == "manual", pointer,
           "a rank knows the norm of its own gradients only after its backward, when reducer \"" +
               s_.reducer.kind + "\" has added them already",
           "reducer manual, or a clipping of kind value");
      need(s_.loss_scaling.kind == "none", pointer, "clip_before_sum with loss scaling",
           "no loss_scaling");
    }
    if (kind == "local_skip")
      need(s_.loss_scaling.kind != "none", pointer, "local_skip without loss scaling",
           "a loss_scaling of kind dynamic");
    if (kind == "stale_momentum")
      need(s_.optimizer.kind != "sgd" || s_.optimizer.options.number("momentum") > 0, pointer,
           "stale_momentum of an optimizer without state", "a momentum > 0, or another optimizer");
  }
};

}  // namespace

void check_training(const Scenario& scenario, InputErrors* errors) {
  TrainingCheck(scenario, errors).run();
}

namespace {

void fail(std::string pointer, std::string message, std::string allowed, InputErrors* errors) {
  errors->push_back({"", 0, 0, std::move(pointer), std::move(message), std::move(allowed)});
}

void check_save_and_resume(const Scenario& s, InputErrors* errors) {
  const Options& options = s.checkpoint.options;
  const int64_t after = options.integer("after_step");
  if (after >= s.steps)
    fail("/checkpoint/after_step", fmt::format("no step comes after step {}", after),
         fmt::format("an integer from 1 to {} (below /steps)", s.steps - 1), errors);
  const int64_t rank = options.integer("load_delay_rank");
  if (rank >= s.world_size)
    fail("/checkpoint/load_delay_rank", fmt::format("there is no rank {}", rank),
         fmt::format("a rank from 0 to {}", s.world_size - 1), errors);
  if (options.text("writers") == "all_ranks" && options.text("write") == "in_place" &&
      options.integer("save_delay_ms") >= s.timeouts.collective_ms && s.timeouts.collective_ms > 0)
    fail("/checkpoint/save_delay_ms", "the others would wait longer than a collective may take",
         "less than /timeouts/collective_ms", errors);
}

// Does the file belong to a run of this scenario?
void check_file(const Scenario& s, const CheckpointFile& file, const std::string& dtype,
                InputErrors* errors) {
  const auto differ = [&](const char* pointer, const std::string& theirs, const std::string& ours) {
    fail("/checkpoint/path",
         fmt::format("the file was saved with {} {}, but {} is {}", std::string(pointer).substr(1),
                     theirs, pointer, ours),
         "the file of a run of this scenario", errors);
  };
  if (file.dtype != dtype) differ("/dtype", file.dtype, dtype);
  if (file.seed != s.seed) differ("/seed", std::to_string(file.seed), std::to_string(s.seed));
  const int64_t epoch = Split(s).steps_per_epoch();
  if (file.batch_size != s.batch_size)
    differ("/batch_size", std::to_string(file.batch_size), std::to_string(s.batch_size));
  else if (file.epoch * epoch + file.next_batch != file.step)
    fail("/checkpoint/path",
         fmt::format("the file's {} steps make {} epochs and {} steps, which an epoch of {} steps "
                     "does not",
                     file.step, file.epoch, file.next_batch, epoch),
         "the file of a run over the same data", errors);
  if (file.step >= s.steps)
    fail("/steps", fmt::format("the file holds step {} already", file.step),
         fmt::format("more than {}", file.step), errors);
  const auto manifest = manifest_of(s.model, dtype);
  if (!manifest) return;
  size_t held = 0;
  for (const SavedTensor& tensor : file.tensors) held += tensor.group == "parameter";
  bool fits = held == manifest->parameters.size();
  for (size_t i = 0; fits && i < held; ++i)
    fits = file.tensors[i].name == manifest->parameters[i].name &&
           file.tensors[i].shape == manifest->parameters[i].shape;
  if (!fits)
    fail("/checkpoint/path", "the file holds another model's parameters",
         "the file of a run of this scenario", errors);
}

std::optional<CheckpointFile> read_file(const Scenario& s, const std::string& path,
                                        const std::string& dtype, InputErrors* errors) {
  try {
    CheckpointFile file = read_checkpoint(path);
    check_file(s, file, dtype, errors);
    return file;
  } catch (const CheckpointError& error) {
    fail("/checkpoint/path", error.what(), "a complete checkpoint, or if_missing \"start\"",
         errors);
    return std::nullopt;
  }
}

}  // namespace

void check_checkpoint(const Scenario& scenario, InputErrors* errors) {
  if (scenario.checkpoint.kind == "save_and_resume") check_save_and_resume(scenario, errors);
}

std::optional<CheckpointFile> resumed_file(const Scenario& scenario, int64_t* double_step,
                                           InputErrors* errors) {
  if (scenario.checkpoint.kind != "resume") return std::nullopt;
  const Options& options = scenario.checkpoint.options;
  const std::string& path = options.text("path");
  const auto may_start = [&](const std::string& missing) {
    std::error_code error;
    return options.text("if_missing") == "start" && !std::filesystem::exists(missing, error);
  };
  if (may_start(path)) return std::nullopt;
  auto file = read_file(scenario, path, scenario.dtype, errors);
  const bool double_run = asks_for(scenario, Lane::float64) && scenario.dtype != "float64";
  if (!file || !double_run || may_start(path + ".double")) return file;
  if (const auto wide = read_file(scenario, path + ".double", "float64", errors))
    *double_step = wide->step;
  return file;
}

}  // namespace lockstep
