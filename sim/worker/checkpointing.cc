#include "sim/worker/checkpointing.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "scenarios/base/hash.h"
#include "scenarios/split.h"
#include "scenarios/workloads/devices.h"

namespace lockstep {
namespace {

Deadline deadline_within(int64_t timeout_ms) {
  return deadline_after(std::chrono::milliseconds(timeout_ms));
}

bool says(const Options& options, const char* key, const char* word) {
  return options.has(key) && options.text(key) == word;
}

int64_t amount(const Options& options, const char* key) {
  return options.has(key) ? options.integer(key) : 0;
}

}  // namespace

Checkpointing::Checkpointing(const RankContext& context, const std::string& dtype, bool primary,
                             Communicator& group)
    : context_(context),
      scenario_(context.plan.scenario),
      options_(scenario_.checkpoint.options),
      dtype_(dtype),
      group_(group),
      start_step_(primary ? context_.plan.start_step : context_.plan.double_start_step),
      path_(options_.has("path") ? options_.text("path") : context_.checkpoint_dir + "/primary") {
  if (!primary) path_ += ".double";
}

bool Checkpointing::on() const { return scenario_.checkpoint.kind != "none"; }

void Checkpointing::prepare() {
  if (!on()) return;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw CheckpointError(
        fmt::format("checkpoint folder {} cannot be made: {}", folder.string(), error.message()));
  if (scenario_.checkpoint.kind == "save_and_resume" && context_.rank == 0) remove_file();
}

bool Checkpointing::resumes_after(int64_t step) const {
  return scenario_.checkpoint.kind == "save_and_resume" && step == options_.integer("after_step");
}

bool Checkpointing::saves_after(int64_t step) const {
  const int64_t every = amount(options_, "every_steps");
  return resumes_after(step) || (every > 0 && step % every == 0);
}

bool Checkpointing::writes() const {
  return context_.rank == 0 || says(options_, "writers", "all_ranks");
}

bool Checkpointing::in_place() const { return says(options_, "write", "in_place"); }

void Checkpointing::pause(const char* option) const {
  std::this_thread::sleep_for(std::chrono::milliseconds(amount(options_, option)));
}

void Checkpointing::meet() {
  group_.barrier(deadline_within(scenario_.timeouts.collective_ms))->wait();
}

void Checkpointing::remove_file() const {
  std::error_code error;
  std::filesystem::remove(path_, error);
  if (error)
    throw CheckpointError(
        fmt::format("checkpoint {}: cannot be removed: {}", path_, error.message()));
}

void Checkpointing::after_step(int64_t step, Training* training) {
  if (!on()) return;
  const bool next =
      scenario_.checkpoint.kind == "save_and_resume" && step == options_.integer("after_step") + 1;
  if (next && context_.rank == 0 && says(options_, "delete", "after_next_step")) remove_file();
  if (!saves_after(step)) return;
  context_.recorder.enter(Phase::checkpoint);
  save(step, training);
}

CheckpointFile Checkpointing::file_of(int64_t step, Training* training) {
  const int64_t steps = Split(scenario_).steps_per_epoch();
  CheckpointFile file;
  file.step = step;
  file.epoch = step / steps;
  file.next_batch = step % steps;
  file.batch_size = scenario_.batch_size;
  file.world_size = scenario_.world_size;
  file.written_by = context_.rank;
  file.seed = scenario_.seed;
  file.dtype = dtype_;
  file.resumed_after = resumed_after_;
  if (const int64_t held_out = amount(options_, "evaluate_samples"); held_out > 0) {
    file.metric = held_out_loss(scenario_, dtype_, held_out, training);
    if (!best_metric_ || *file.metric < *best_metric_) {
      best_metric_ = file.metric;
      best_step_ = step;
    }
    file.best_metric = best_metric_;
    file.best_step = best_step_;
  }
  file.tensors = saved_tensors(*training, options_.flag("optimizer_state"));
  return file;
}

void Checkpointing::save(int64_t step, Training* training) {
  // Every rank: the metric is every rank's, and best_metric_ must be known on all.
  const CheckpointFile file = file_of(step, training);
  const std::string suffix = fmt::format("rank-{}", context_.rank);
  if (writes() && !in_place()) {
    pause("save_delay_ms");
    write_checkpoint(file, path_, suffix);
    if (file.metric && file.best_step == step) write_checkpoint(file, path_ + ".best", suffix);
  }
  if (in_place()) save_in_turns(encode_checkpoint(file));
  if (!options_.has("barrier") || options_.flag("barrier")) meet();
}

// One order of many in which writers of one file may overtake each other, the same in every run:
// first halves in the order of ranks, second halves in the opposite one.
void Checkpointing::save_in_turns(const std::string& bytes) {
  const bool alone = says(options_, "writers", "rank_0");
  for (const bool second : {false, true}) {
    if (second && writes()) pause("save_delay_ms");
    for (int64_t turn = 0; turn < scenario_.world_size; ++turn) {
      const int64_t writer = second ? scenario_.world_size - 1 - turn : turn;
      if (writes() && writer == context_.rank) write_part(bytes, second);
      if (!alone) meet();
    }
  }
}

void Checkpointing::write_part(const std::string& bytes, bool second) {
  const auto half = static_cast<std::streamoff>(bytes.size() / 2);
  std::fstream out(path_, second ? std::ios::binary | std::ios::in | std::ios::out
                                 : std::ios::binary | std::ios::out | std::ios::trunc);
  out.seekp(second ? half : 0);
  const auto all = static_cast<std::streamoff>(bytes.size());
  out.write(bytes.data() + (second ? half : 0), second ? all - half : half);
  out.close();
  if (!out) throw CheckpointError(fmt::format("checkpoint {}: cannot be written", path_));
}

Training Checkpointing::build_anew() const {
  const RandomSection random(
      substream_seed(scenario_.seed, "resumed", static_cast<uint64_t>(context_.rank)));
  return build_training(scenario_, dtype_,
                        rank_devices(scenario_, context_.rank, context_.local_rank));
}

void Checkpointing::load(Training* training) {
  if (context_.rank != 0 && says(options_, "loaders", "rank_0")) return;
  if (context_.rank == amount(options_, "load_delay_rank")) pause("load_delay_ms");
  const CheckpointFile file = read_checkpoint(path_);
  if (file.seed != scenario_.seed)
    throw CheckpointError(
        fmt::format("checkpoint {}: its samples come in the order of seed {}, "
                    "this run's in that of seed {}",
                    path_, file.seed, scenario_.seed));
  restore(file, path_, options_.flag("optimizer_state"), training,
          says(options_, "device_map", "none") ? DeviceMap(device_of_name) : DeviceMap());
  metric_ = file.metric;
  best_metric_ = file.best_metric;
  best_step_ = file.best_step;
  resumed_after_ = file.resumed_after;
  resumed_after_.push_back(file.step);
  if (context_.rank == 0 && says(options_, "delete", "after_load")) remove_file();
}

std::string Checkpointing::problem_with(const std::vector<SavedTensor>& before,
                                        Training* training) {
  std::string problem = first_not_restored(before, saved_tensors(*training, true));
  const int64_t held_out = amount(options_, "evaluate_samples");
  if (!problem.empty() || !metric_ || held_out == 0) return problem;
  const double metric = held_out_loss(scenario_, dtype_, held_out, training);
  if (metric == *metric_) return "";
  return fmt::format("its held-out loss is {}, that of the saved state was {}", metric, *metric_);
}

}  // namespace lockstep
