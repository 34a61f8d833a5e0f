#include <fmt/format.h>

#include <filesystem>

#include "scenarios/split.h"
#include "sim/plan/rules.h"

namespace lockstep {
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
  const bool double_run = asks_for(scenario, "float64") && scenario.dtype != "float64";
  if (!file || !double_run || may_start(path + ".double")) return file;
  if (const auto wide = read_file(scenario, path + ".double", "float64", errors))
    *double_step = wide->step;
  return file;
}

}  // namespace lockstep
