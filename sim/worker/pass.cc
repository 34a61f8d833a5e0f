#include "sim/worker/pass.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "reducer/manifest.h"
#include "scenarios/split.h"
#include "sim/worker/gradient_checks.h"

namespace lockstep {
namespace {

Deadline within(int64_t timeout_ms) {
  return deadline_after(std::chrono::milliseconds(timeout_ms));
}

ReducerOptions reducer_options(const Scenario& scenario, int64_t rank) {
  const Options& given = scenario.reducer.options;
  ReducerOptions options;
  options.kind = scenario.reducer.kind;
  options.bucket_cap_bytes = bytes_of_mib(given.number("bucket_cap_mb"));
  options.first_bucket_bytes = bytes_of_mib(given.number("first_bucket_mb"));
  options.gradient_as_bucket_view = given.flag("gradient_as_bucket_view");
  options.find_unused_parameters = given.flag("find_unused_parameters");
  options.static_graph = given.flag("static_graph");
  options.broadcast_buffers = given.flag("broadcast_buffers");
  options.synchronize_at_construction = !has_mutant(scenario.mutants, "skip_broadcast", rank);
  options.construction_timeout = std::chrono::milliseconds(scenario.timeouts.construction_ms);
  options.collective_timeout = std::chrono::milliseconds(scenario.timeouts.collective_ms);
  return options;
}

// Samples of rank `rank` in all batches of the data set, batch after batch.
std::vector<int64_t> rows_of_rank(const Scenario& scenario, int64_t rank) {
  const int64_t source = shard_rank(scenario.mutants, rank, scenario.world_size);
  const int64_t batches = scenario.data.options.integer("samples") / scenario.batch_size;
  std::vector<int64_t> rows;
  for (int64_t batch = 1; batch <= batches; ++batch)
    for (int64_t row : shard_indices(scenario, batch, source)) rows.push_back(row);
  return rows;
}

// Rank 0 sends every rank its rows of `all`; the shape of a row follows from the data's options.
at::Tensor scatter_rows(const Scenario& scenario, const at::Tensor& all, int64_t columns,
                        at::ScalarType dtype, Communicator& communicator) {
  const int64_t ranks = communicator.world_size();
  const int64_t own = scenario.data.options.integer("samples") / ranks;
  at::Tensor output = at::empty({own, columns}, at::TensorOptions().dtype(dtype));
  at::Tensor input;
  if (communicator.rank() == 0) {
    std::vector<at::Tensor> parts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const std::vector<int64_t> rows = rows_of_rank(scenario, rank);
      parts.push_back(select({all, all}, rows).input);
    }
    input = at::cat(parts);
  }
  communicator.scatter(output, input, 0, within(scenario.timeouts.construction_ms))->wait();
  return output;
}

}  // namespace

RankCommunicator::RankCommunicator(std::unique_ptr<Communicator> real,
                                   const RankSurroundings& surroundings, Probe& probe) {
  auto mutants =
      make_mutants(std::move(real), surroundings.plan.scenario.mutants, surroundings.recorder);
  mutants_ = mutants.get();
  recording_ = make_recording(std::move(mutants), probe);
}

void RankCommunicator::begin_backward() {
  recording_->begin_backward();
  mutants_->begin_backward();
}

void RankCommunicator::end_backward() {
  recording_->end_backward();
  mutants_->end_backward();
}

Pass::Pass(const RankSurroundings& surroundings, RankCommunicator& communicator,
           RecordingProbe& probe, const std::string& dtype, bool primary, Evidence* evidence)
    : around_(surroundings),
      scenario_(surroundings.plan.scenario),
      communicator_(communicator),
      probe_(probe),
      dtype_(dtype),
      primary_(primary),
      evidence_(evidence) {}

Pass::~Pass() = default;

void Pass::run() {
  around_.recorder.set_step(0);
  load();
  construct();
  for (int64_t step = 1; step <= scenario_.steps; ++step) this->step(step);
  observer_->finish();
}

void Pass::load() {
  around_.recorder.enter(Phase::load);
  Setup setup = set_up(scenario_, dtype_, around_.rank);
  training_ = std::move(setup.training);
  if (scenario_.split.kind == "manual" && scenario_.world_size > 1) {
    const Options& data = scenario_.data.options;
    const at::ScalarType type = dtype_ == "float64" ? at::kDouble : at::kFloat;
    Communicator& group = communicator_.outermost();
    rows_.input = scatter_rows(scenario_, setup.data.input, data.integer("features"), type, group);
    rows_.target = scatter_rows(scenario_, setup.data.target, data.integer("targets"), type, group);
  } else {
    rows_ = select(setup.data, rows_of_rank(scenario_, around_.rank));
  }
}

void Pass::construct() {
  around_.recorder.enter(Phase::construction);
  reducer_ = make_reducer(reducer_options(scenario_, around_.rank), training_.parameters,
                          training_.buffers, communicator_.outermost(), probe_);
  if (primary_) check_values();
  observer_ = std::make_unique<Observer>(around_, training_, probe_, primary_, evidence_);
  observer_->after_construction();
}

void Pass::check_values() {
  const std::string difference =
      differing_values(training_.parameters, training_.buffers, communicator_.outermost(),
                       within(scenario_.timeouts.construction_ms));
  record_check(Check::manifest, "manifest", difference);
}

void Pass::check_gradients() {
  const auto placed = [&](const std::string& problem) {
    return problem.empty() ? ""
                           : fmt::format("rank {}, step {}: {}", around_.rank,
                                         around_.recorder.step(), problem);
  };
  record_check(Check::absent_gradients, "absent_gradients",
               placed(absent_gradient(scenario_, training_)));
  record_check(Check::aliasing, "aliasing", placed(wrong_aliasing(scenario_, training_, probe_)));
}

void Pass::record_check(Check check, const std::string& word, const std::string& problem) {
  around_.recorder.append(EventKind::check, static_cast<int32_t>(check), problem.empty());
  if (!problem.empty()) evidence_->check_reasons.push_back(word + ": " + problem);
}

Batch Pass::shard_of_step(int64_t step) const {
  const int64_t shard = scenario_.batch_size / scenario_.world_size;
  const int64_t batches = rows_.input.size(0) / shard;
  const int64_t first = (step - 1) % batches * shard;
  return {rows_.input.narrow(0, first, shard).clone(),
          rows_.target.narrow(0, first, shard).clone()};
}

void Pass::step(int64_t step) {
  Recorder& recorder = around_.recorder;
  recorder.set_step(static_cast<int32_t>(step));
  recorder.enter(Phase::load);
  const Batch batch = shard_of_step(step);
  clear_gradients(training_.parameters, scenario_.zero_grad);
  recorder.enter(Phase::forward);
  reducer_->before_forward();
  const at::Tensor output = training_.model->forward(batch.input);
  const at::Tensor loss = loss_of(scenario_.loss, output, batch.target, scenario_.world_size);
  recorder.enter(Phase::backward);
  observer_->before_backward();
  communicator_.begin_backward();
  reducer_->before_backward({output});
  loss.backward();
  recorder.enter(Phase::wait);
  reducer_->after_backward();
  communicator_.end_backward();
  // Step 1 and 2 have different layouts; the last must still be as they were.
  if (primary_ && (step <= 2 || step == scenario_.steps)) check_gradients();
  recorder.enter(Phase::optimizer);
  training_.optimizer->step();
  requantize(training_.parameters, scenario_.requantize);
  recorder.append(EventKind::step_end);
  observer_->after_step(step);
}

}  // namespace lockstep
