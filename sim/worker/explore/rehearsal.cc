#include "sim/worker/explore/rehearsal.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "reducer/base/reducer_base.h"
#include "reducer/probe.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/race_mutants.h"
#include "sim/worker/communication.h"
#include "sim/worker/explore/native_waits.h"

namespace lockstep {
namespace {

struct StepSamples {
  std::vector<Batch> parts;  // micro-batches
  double share = 1;
};

std::vector<StepSamples> samples_of(const Scenario& scenario, const Batch& data, int64_t rank) {
  Split split(scenario);
  std::vector<StepSamples> steps;
  for (int64_t step = 1; step <= scenario.steps; ++step) {
    const Batch shard = select(data, split.shard(step, rank));
    steps.push_back({micro_batches(shard, scenario.accumulate_steps),
                     loss_share(scenario, shard.input.size(0), split.batch_samples(step))});
  }
  return steps;
}

}  // namespace

struct Rehearsal::Rank {
  Training training;
  std::vector<at::Tensor> weights;  // of all parameters, then buffers, before the first step
  std::vector<at::Tensor> state;    // where they go
  std::vector<at::Tensor> trained;
  std::vector<std::string> names;  // of the trained ones
  std::vector<StepSamples> steps;
};

// What one rank does in one schedule.
class Rehearsal::Run {
 public:
  Run(Rehearsal& group, int64_t rank)
      : group_(group),
        scenario_(group.plan_.scenario),
        rank_(rank),
        self_(*group.ranks_[static_cast<size_t>(rank)]),
        wire_(make_scheduled_communicator(rank, scenario_.world_size, group.hub_)),
        mutants_(make_race_mutants(*wire_, scenario_.mutants,
                                   [this](size_t count) { return pick(count); })),
        native_(make_native_waits(*mutants_)),
        batch_(*native_, std::chrono::milliseconds(scenario_.timeouts.collective_ms)),
        hooks_(self_.trained, [this](size_t place) {
          say([&] { return "has the gradient of " + self_.names[place]; });
        }) {}
  ~Run() { self_.training.model->normalize_over(nullptr); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void run() {
    self_.training.model->normalize_over(&batch_);
    say([] { return std::string("makes its reducer"); });
    // Without decorators where there is nothing to decorate: this is the hot path.
    Communicator& communicator = is_native() ? *native_
                                 : !scenario_.mutants.empty()
                                     ? static_cast<Communicator&>(*mutants_)
                                     : *wire_;
    reducer_ = make_reducer(reducer_options_of(scenario_, rank_), self_.training.parameters,
                            self_.training.buffers, communicator, probe_);
    for (int64_t step = 1; step <= scenario_.steps; ++step) {
      group_.scheduler_.set_step(rank_, step);
      this->step(step);
    }
    reducer_.reset();
  }

 private:
  template <class Text>
  void say(Text&& text) {
    group_.scheduler_.point(rank_, text);
  }
  bool is_native() const { return scenario_.reducer.kind == "c10d"; }

  size_t pick(size_t count) { return group_.scheduler_.pick(count); }

  void step(int64_t step) {
    Training& training = self_.training;
    const StepSamples& samples = self_.steps[static_cast<size_t>(step - 1)];
    clear_gradients(training.parameters, scenario_.zero_grad);
    for (size_t i = 0; i < samples.parts.size(); ++i)
      micro_batch(step, samples.parts[i], samples.share,
                  scenario_.accumulate_sync == "each" || i + 1 == samples.parts.size());
    say([] { return std::string("updates its weights"); });
    update(scenario_, step, &training);
    check(step);
    say([] { return std::string("ends the step"); });
  }

  void micro_batch(int64_t step, const Batch& batch, double share, bool synchronizes) {
    say([] { return std::string("begins its forward"); });
    reducer_->before_forward(synchronizes);
    const at::Tensor output = forward_of(self_.training, step, batch);
    reducer_->after_forward();
    const at::Tensor loss =
        loss_of(scenario_.loss, output, batch.target, scenario_.world_size, share);
    say([] { return std::string("begins its backward"); });
    if (synchronizes) {
      mutants_->begin_backward(step);
      native_->begin_backward();
      reducer_->before_backward(self_.training.model->outputs(output));
    }
    loss.backward();
    say([] { return std::string("ends its backward"); });
    if (!synchronizes) return;
    reducer_->after_backward();
    mutants_->end_backward();
    native_->end_backward();
  }

  void check(int64_t step) {
    ExploreReference& reference = group_.reference_;
    if (!reference.knows(step)) return reference.remember(step, self_.training);
    auto failure = reference.difference(rank_, step, self_.training);
    if (failure) group_.scheduler_.fail(std::move(*failure));
  }

  Rehearsal& group_;
  const Scenario& scenario_;
  const int64_t rank_;
  Rank& self_;
  NoProbe probe_;
  const std::unique_ptr<Communicator> wire_;
  const std::unique_ptr<RaceMutants> mutants_;
  const std::unique_ptr<NativeWaits> native_;
  RankBatch batch_;
  GradientHooks hooks_;  // before the reducer's own: its act comes after the point
  std::unique_ptr<Reducer> reducer_;
};

Rehearsal::Rehearsal(const RunPlan& plan, ExploreReference& reference, int cpu)
    : plan_(plan),
      reference_(reference),
      scheduler_(plan.scenario.world_size, cpu),
      hub_(plan.scenario.world_size,
           sum_order(plan.scenario.communicator.options.text("algorithm")), scheduler_) {
  const Scenario& scenario = plan_.scenario;
  Batch data;
  for (int64_t rank = 0; rank < scenario.world_size; ++rank) {
    Setup setup = set_up(scenario, scenario.dtype, rank);
    if (rank == 0) data = setup.data;
    auto& made = *ranks_.emplace_back(std::make_unique<Rank>());
    made.training = std::move(setup.training);
    for (const NamedTensors* named : {&made.training.parameters, &made.training.buffers})
      for (const NamedTensor& one : *named) {
        made.state.push_back(one.tensor.detach());
        made.weights.push_back(one.tensor.detach().clone());
      }
    TrainedParameters known = trained(made.training.parameters);
    made.trained = std::move(known.tensors);
    made.names = std::move(known.names);
    made.steps = samples_of(scenario, data, rank);
  }
}

Rehearsal::~Rehearsal() = default;

std::vector<std::string> Rehearsal::trained_parameters() const { return ranks_.front()->names; }

void Rehearsal::put_back(Rank& rank) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < rank.state.size(); ++i) rank.state[i].copy_(rank.weights[i]);
  for (const at::Tensor& parameter : rank.trained) parameter.mutable_grad() = at::Tensor();
  rank.training.optimizer = build_optimizer(plan_.scenario.optimizer, rank.training.parameters);
}

std::optional<ScheduleFailure> Rehearsal::run(Chooser& chooser, bool traced) {
  hub_.clear();
  for (const auto& rank : ranks_) put_back(*rank);
  return scheduler_.run(
      chooser, hub_, [this](int64_t rank) { Run(*this, rank).run(); }, traced);
}

}  // namespace lockstep
