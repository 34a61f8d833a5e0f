#include "sim/worker/training_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "reducer/base/parameter_sync.h"
#include "scenarios/base/hash.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/update.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/training_mutants.h"
#include "sim/record/core_wait.h"
#include "sim/worker/communication.h"
#include "sim/worker/gradient_checks.h"
#include "sim/worker/partition.h"

namespace lockstep {
namespace {

Deadline within(int64_t timeout_ms) {
  return deadline_after(std::chrono::milliseconds(timeout_ms));
}

// The rank's own dtype.
std::string followed_dtype(const std::string& dtype, RankFaults& faults) {
  const Fault* fault = faults.standing(FaultKind::mismatched_dtype);
  return fault != nullptr ? fault->options.text("dtype") : dtype;
}

std::unique_ptr<ComputeClock> clock_of(const RunPlan& plan, bool primary) {
  if (!primary || plan.layer_times.empty()) return nullptr;
  return std::make_unique<ComputeClock>(plan.layer_times, planned_samples(plan.scenario));
}

NamedTensors in_other_order(NamedTensors parameters) {
  std::reverse(parameters.begin(), parameters.end());
  return parameters;
}

// What the threads of shards that take turns wait for a core, which is the rank's wait.
class TurnWaits {
 public:
  TurnWaits(Recorder& recorder, size_t shards) : recorder_(recorder), threads_(shards) {}

  // Of the thread of `shard`, which calls first.
  void note(size_t shard) {
    Thread& thread = threads_[shard];
    if (!thread.wait) thread.wait = CoreWait::of_this_thread();
    const int64_t before = thread.noted_ns;
    thread.noted_ns = std::max(before, thread.wait->own_ns());  // 0 where it has ended
    recorder_.add_core_wait(thread.noted_ns - before);
  }

 private:
  struct Thread {
    std::unique_ptr<CoreWait> wait;
    int64_t noted_ns = 0;
  };
  Recorder& recorder_;
  std::vector<Thread> threads_;
};

}  // namespace

ReducerOptions TrainingRun::reducer_options() {
  ReducerOptions options = reducer_options_of(scenario_, context_.rank);
  if (const Fault* fault = faults_.standing(FaultKind::mismatched_bucket_cap))
    options.bucket_cap_bytes = bytes_of_mib(fault->options.number("bucket_cap_mb"));
  apply_reducer_mutants(scenario_.mutants, context_.rank, &options);
  return options;
}

TrainingRun::TrainingRun(const RankContext& context, Communicator& communicator, RankFaults& faults,
                         RecordingProbe& probe, const std::string& dtype, bool primary,
                         Evidence* evidence)
    : context_(context),
      scenario_(context.plan.scenario),
      gathers_(context.plan.replay.gathered),
      communicator_(communicator),
      faults_(faults),
      probe_(probe),
      batch_(communicator, std::chrono::milliseconds(scenario_.timeouts.collective_ms)),
      seen_batch_(scenario_, context.rank, context.recorder, batch_),
      dtype_(followed_dtype(dtype, faults)),
      primary_(primary),
      compute_clock_(clock_of(context.plan, primary)),
      evidence_(evidence),
      checkpointing_(context, dtype, primary, communicator),
      mutants_(scenario_, context.rank, context.recorder),
      step_mutants_(scenario_, context.rank, context.recorder),
      gradient_mutants_(scenario_, context.rank, context.recorder),
      layer_faults_(scenario_, faults, compute_clock_.get()) {
  if (primary && context_.rank == 0 && !context_.plan.export_dir.empty())
    export_ = std::make_unique<Export>(context_.plan);
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::run() {
  context_.recorder.set_step(0);
  checkpointing_.prepare();
  load();
  construct();
  const bool joins = scenario_.join_divide_by.has_value();
  const int64_t last = last_step();
  for (int64_t step = checkpointing_.start_step() + 1; step <= last; ++step) {
    const bool active = samples_->has_batch(step);
    if (!active && !joins) break;
    active ? this->step(step) : shadow(step);
    if (joins && samples_->ends_epoch(step)) end_join(step);
    checkpointing_.after_step(step, &training_);
    if (checkpointing_.resumes_after(step)) resume(step);
  }
  observer_->finish();
  if (primary_) {
    evidence_->optimizer_bytes = optimizer_bytes();
    evidence_->reducer_data = reducer_data_text(reducer_->data());
  }
  if (export_) export_->final(training_, evidence_->reducer_data);
  note_unrepeatable_forward();
}

// A rank with fewer batches leaves before the others.
int64_t TrainingRun::last_step() {
  const Fault* fault = faults_.standing(FaultKind::fewer_batches);
  return scenario_.steps - (fault != nullptr ? fault->options.integer("batches") : 0);
}

void TrainingRun::load() {
  faults_.enter(Phase::load);
  const std::vector<c10::Device> devices =
      rank_devices(scenario_, context_.rank, context_.local_rank);
  Setup setup = set_up(scenario_, dtype_, context_.rank, devices);
  // Of streams that are as late as may be nobody asks when.
  if (primary_ && devices.size() == 1 && scenario_.streams != "late")
    device_clock_ = DeviceClock::of(devices.front());
  probe_.use(device_clock_.get());
  training_ = std::move(setup.training);
  if (export_) export_->data(setup.data);
  samples_ = std::make_unique<RankSamples>(scenario_, dtype_, setup.data, communicator_);
  share_out_training();
}

// Who computes and who updates what.
void TrainingRun::share_out_training() {
  run_on_replicas(scenario_, dtype_, &training_);
  sharing_ = partition_optimizer(scenario_, reducer_options(), &training_, communicator_);
}

void TrainingRun::construct() {
  if (checkpointing_.start_step() > 0) {
    context_.recorder.enter(Phase::checkpoint);
    checkpointing_.load(&training_);
  }
  mutants_.at_start(&training_);
  step_mutants_.before_construction(training_);
  build_reducer();
  consolidate();
  observer_ = std::make_unique<Observer>(context_, training_, probe_, primary_, evidence_);
  observer_->after_construction();
  if (export_) export_->initial(training_);
}

void TrainingRun::build_reducer() {
  faults_.enter(Phase::construction);
  ReducerOptions options = reducer_options();
  if (training_.model->normalize_over(&seen_batch_) && has_virtual_shards(scenario_)) {
    shards_together_ = std::make_unique<ShardsTogether>(seen_batch_, context_.rank,
                                                        scenario_.world_size, shards_of(scenario_));
    training_.model->normalize_over(shards_together_.get());
    options.shards_together = true;
  }
  training_.model->run_by(compute_clock_.get());
  layer_faults_.watch(training_);
  const bool other_order = faults_.standing(FaultKind::mismatched_bucket_order) != nullptr;
  const NamedTensors parameters = step_mutants_.known_parameters(training_.parameters);
  reducer_ = make_reducer(options, other_order ? in_other_order(parameters) : parameters,
                          step_mutants_.known_buffers(training_.buffers), communicator_, probe_);
  step_mutants_.after_construction(training_);
  if (primary_) check_values();
  note_buffers(&training_);
  mutants_.watch(training_);
  gradient_mutants_.watch(training_);
}

// As a program that ends here and is started again, but for the process group.
void TrainingRun::resume(int64_t step) {
  context_.recorder.enter(Phase::checkpoint);
  const std::vector<SavedTensor> before = saved_tensors(training_, true);
  observer_->forget_training();
  reducer_.reset();
  training_ = checkpointing_.build_anew();
  share_out_training();
  checkpointing_.load(&training_);
  mutants_.after_resume(&training_);
  build_reducer();
  observer_->know_training();
  if (!primary_) return;
  const std::string problem = checkpointing_.problem_with(before, &training_);
  record_check(Check::checkpoint, problem.empty()
                                      ? ""
                                      : fmt::format("rank {}, resumed after step {}: {}",
                                                    context_.rank, step, problem));
}

// What each rank holds a part of, whole on every rank: for lanes and checkpoints.
void TrainingRun::consolidate() {
  if (sharing_.optimizer == nullptr) return;
  context_.recorder.enter(Phase::checkpoint);
  sharing_.consolidate();
}

int64_t TrainingRun::optimizer_bytes() const {
  return sharing_.optimizer != nullptr ? sharing_.optimizer->own_bytes()
                                       : state_bytes(*training_.optimizer);
}

void TrainingRun::check_values() {
  const std::string difference =
      differing_values(training_.parameters, training_.buffers, communicator_,
                       within(scenario_.timeouts.construction_ms));
  record_check(Check::manifest, difference);
}

void TrainingRun::check_gradients() {
  const auto placed = [&](const std::string& problem) {
    return problem.empty() ? ""
                           : fmt::format("rank {}, step {}: {}", context_.rank,
                                         context_.recorder.step(), problem);
  };
  record_check(Check::absent_gradients, placed(absent_gradient(scenario_, training_)));
  record_check(Check::aliasing, placed(wrong_aliasing(scenario_, training_, probe_)));
}

void TrainingRun::record_check(Check check, const std::string& problem) {
  context_.recorder.append(EventKind::check, static_cast<int32_t>(check), problem.empty());
  if (!problem.empty())
    evidence_->check_reasons.push_back({check, context_.rank, context_.recorder.step(), problem});
}

// What the samples explain, once they are not the plan's; the lanes say whether it matters.
void TrainingRun::note_samples() {
  if (samples_noted_) return;  // the double run has its own, as loaders may race
  const std::string batch = samples_->other_batch();
  const std::string other = batch.empty() ? samples_->other_samples() : batch;
  if (other.empty()) return;
  samples_noted_ = true;
  evidence_->check_reasons.push_back({batch.empty() ? Check::samples : Check::batch, context_.rank,
                                      context_.recorder.step(),
                                      fmt::format("rank {}, {}", context_.rank, other)});
}

void TrainingRun::step(int64_t step) {
  Recorder& recorder = context_.recorder;
  recorder.set_step(static_cast<int32_t>(step));
  faults_.enter(Phase::load);
  Batch shard = samples_->shard(step);
  mutants_.have_samples();
  if (mutants_.draws_as_rank_0()) shard.samples = samples_->of_rank_0();
  note_samples();
  const std::vector<MicroBatch> parts = micro_batches_of(step, shard);
  clear_gradients(training_.parameters, scenario_.zero_grad);
  observer_->before_backward();
  if (device_clock_) device_clock_->anchor();
  const double loss = train_on(parts);
  probe_.note_device_times();
  note_loss(step, loss / parts.front().share);
  // Step 1 and 2 have different layouts; the last must still be as they were.
  if (primary_ && (step <= 2 || step == scenario_.steps)) check_gradients();
  faults_.enter(Phase::optimizer);
  mutants_.update(step, &training_);
  if (averages_parameters(scenario_, step))
    average_parameters(training_.parameters, communicator_,
                       within(scenario_.timeouts.collective_ms));
  recorder.end_step();
  consolidate();
  observer_->after_step(step);
}

double TrainingRun::train_on(const std::vector<MicroBatch>& parts) {
  const bool forgets = mutants_.forgets_sync();
  double loss = 0;
  if (shards_together_)
    train_together(parts);
  else
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool due = scenario_.accumulate_sync == "each" || i + 1 == parts.size();
      loss += micro_batch(parts[i].samples, parts[i].share, i == 0, due && !forgets);
    }
  return loss;
}

std::vector<TrainingRun::MicroBatch> TrainingRun::micro_batches_of(int64_t step,
                                                                   const Batch& shard) {
  if (has_virtual_shards(scenario_)) return of_virtual_shards(step, shard);
  const double share =
      loss_share(samples_->followed(), shard.input.size(0), samples_->batch_samples(step)) *
      loss_factor(scenario_, training_, step, gathers_ ? -1 : context_.rank) *
      step_mutants_.share_factor();
  std::vector<MicroBatch> parts;
  for (Batch& part : micro_batches(shard, scenario_.accumulate_steps))
    parts.push_back({std::move(part), share});
  return parts;
}

// Losses of virtual shards are not reported.
void TrainingRun::train_together(const std::vector<MicroBatch>& parts) {
  const auto each = static_cast<size_t>(scenario_.accumulate_steps);
  TurnWaits waits(context_.recorder, parts.size() / each);
  const auto compute = [&](size_t shard) {
    for (size_t i = shard * each; i < (shard + 1) * each; ++i)
      micro_batch(parts[i].samples, parts[i].share, i == 0, i + 1 == parts.size());
    waits.note(shard);
  };
  std::vector<Phase> phases(parts.size() / each, context_.recorder.phase());
  // What a shard is in the middle of is known to whoever goes on, not to whoever comes next.
  shards_together_->run(training_, *reducer_, compute, [&](size_t from, size_t to) {
    if (from != to) waits.note(from);
    waits.note(to);
    phases[from] = context_.recorder.phase();
    if (phases[to] != phases[from]) context_.recorder.enter(phases[to]);
  });
}

// Each as the rank of its number would have it, were there a rank for each.
std::vector<TrainingRun::MicroBatch> TrainingRun::of_virtual_shards(int64_t step,
                                                                    const Batch& all) {
  const Scenario wide = with_rank_per_shard(samples_->followed());
  std::vector<MicroBatch> parts;
  int64_t shard = samples_->virtual_shards().begin, first = 0;
  for (const int64_t size : samples_->virtual_sizes()) {
    const Batch own = {all.input.narrow(0, first, size).clone(),
                       all.target.narrow(0, first, size).clone(), samples_in(all, first, size)};
    const double share = loss_share(wide, size, samples_->batch_samples(step)) *
                         loss_factor(scenario_, training_, step, shard++);
    for (Batch& part : micro_batches(own, scenario_.accumulate_steps))
      parts.push_back({std::move(part), share});
    first += size;
  }
  return parts;
}

// The others' step, in which this rank has no batch.
void TrainingRun::shadow(int64_t step) {
  Recorder& recorder = context_.recorder;
  recorder.set_step(static_cast<int32_t>(step));
  recorder.enter(Phase::wait);
  for (int64_t i = 1; i <= scenario_.accumulate_steps; ++i) {
    if (i == scenario_.accumulate_steps) communicator_.begin_backward();
    if (!reducer_->shadow())
      throw std::runtime_error("no rank has a batch, but the plan gives one to some");
  }
  communicator_.end_backward();
  recorder.end_step();
  observer_->after_shadow(step);
}

void TrainingRun::end_join(int64_t step) {
  context_.recorder.enter(Phase::wait);
  if (reducer_->shadow())
    throw std::runtime_error("a rank has more batches than the plan gives it");
  if (!samples_->has_batch(step)) observer_->after_join(step);
}

// Without what this rank's part weighs in the step: its own mean, or sum.
void TrainingRun::note_loss(int64_t step, double loss) {
  if (!primary_ || !reports_loss(step)) return;
  const Options& given = scenario_.loss.options;
  loss /= given.number("scale");
  if (given.flag("times_world_size")) loss /= static_cast<double>(scenario_.world_size);
  if (given.text("reduction") == "mean") loss /= static_cast<double>(scenario_.accumulate_steps);
  context_.recorder.append(EventKind::loss, -1, std::bit_cast<uint64_t>(loss));
}

bool TrainingRun::reports_loss(int64_t step) const {
  if (scenario_.common_checks) return true;
  const int64_t every = report_every(scenario_.loss);
  return every > 0 && (step - 1) % samples_->steps_per_epoch() % every == 0;
}

// Its output is not used.
void TrainingRun::forward_again(const Batch& batch, bool synchronizes) {
  reducer_->before_forward(synchronizes);
  forward_of(training_, context_.recorder.step(), batch);
  reducer_->after_forward();
}

// Golden runs cannot repeat what it draws then; the judge says what follows.
void TrainingRun::note_undeclared_draws() {
  if (evidence_->undeclared_draws || !training_.draws->any_undeclared()) return;
  evidence_->undeclared_draws = true;
  evidence_->random_layers = training_.model->undeclared_random_layers();
}

// Of shipped models this is known. After all that counts is done, for what it draws is drawn.
void TrainingRun::note_unrepeatable_forward() {
  const std::string& kind = scenario_.model.kind;
  if (evidence_->mismatches.empty() || evidence_->undeclared_draws ||
      evidence_->unrepeatable_forward || !last_batch_.input.defined())
    return;
  if (kind != "registered" && kind != "torchscript") return;
  evidence_->unrepeatable_forward =
      !repeats_itself(training_, context_.recorder.step(), last_batch_);
  note_undeclared_draws();
}

double TrainingRun::micro_batch(const Batch& batch, double share, bool first, bool synchronizes) {
  Recorder& recorder = context_.recorder;
  faults_.enter(Phase::forward);
  const bool calls = !step_mutants_.bypasses();
  if (calls) reducer_->before_forward(synchronizes);
  if (first) note_buffers(&training_);
  layer_faults_.begin_forward(training_);
  const at::Tensor output = forward_of(training_, recorder.step(), batch);
  note_undeclared_draws();
  last_batch_ = batch;
  layer_faults_.end_forward();
  if (calls) reducer_->after_forward();
  if (step_mutants_.forwards_twice()) forward_again(batch, synchronizes);
  const at::Tensor loss =
      loss_of(scenario_.loss, output, batch.target, gathers_ ? 1 : shards_of(scenario_), share);
  if (faults_.in_step(FaultKind::skip_backward) != nullptr) return 0;
  faults_.enter(Phase::backward);
  layer_faults_.begin_backward(training_);
  if (compute_clock_) compute_clock_->begin_backward();
  if (synchronizes) {
    // Reducer invariant takes each shard's gradients away.
    if (scenario_.accumulate_steps > 1 && scenario_.accumulate_sync == "last" &&
        !has_virtual_shards(scenario_))
      observer_->before_last_backward();
    communicator_.begin_backward();
    if (calls) reducer_->before_backward(training_.model->outputs(output));
  }
  step_mutants_.backward(loss, training_);
  mutants_.loss_is(loss);
  const double value = primary_ && reports_loss(recorder.step()) ? loss.item<double>() : 0;
  if (!synchronizes) {
    step_mutants_.after_micro_batch(training_);
    return value;
  }
  mutants_.after_backward(training_);
  faults_.enter(Phase::wait);
  if (calls && !step_mutants_.skips_finalize()) reducer_->after_backward();
  communicator_.end_backward();
  step_mutants_.after_reduction(loss, training_);
  return value;
}

}  // namespace lockstep
