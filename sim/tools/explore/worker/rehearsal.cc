#include "sim/tools/explore/worker/rehearsal.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "golden/golden_run.h"
#include "reducer/base/reducer_base.h"
#include "reducer/probe.h"
#include "reducer/shard_tree.h"
#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/mutants.h"
#include "sim/tools/explore/worker/scheduled_hub.h"
#include "sim/worker/communication.h"
#include "sim/worker/shards_together.h"

namespace lockstep {
namespace {

constexpr std::byte kAbsent[] = {std::byte{'-'}};

// Calls visit(what, parameter, bytes, size, tensor or null where there is none), weights first.
template <class Visit>
void for_values(const NamedTensors& parameters, Visit&& visit) {
  const auto one = [&](const char* what, const NamedTensor& parameter, const at::Tensor& tensor) {
    if (!tensor.defined()) return visit(what, parameter, kAbsent, sizeof kAbsent, tensor);
    const at::Tensor dense = !tensor.is_sparse() && tensor.is_contiguous()
                                 ? tensor
                                 : (tensor.is_sparse() ? tensor.to_dense() : tensor).contiguous();
    visit(what, parameter, static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes(), dense);
  };
  for (const NamedTensor& parameter : parameters) one("parameter", parameter, parameter.tensor);
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.requires_grad()) one("gradient", parameter, parameter.tensor.grad());
}

std::string value_text(const std::byte* at, at::ScalarType type) {
  if (type == at::kFloat) {
    float value;
    uint32_t bits;
    std::memcpy(&value, at, sizeof value);
    std::memcpy(&bits, at, sizeof bits);
    return fmt::format("{} {:#010x}", std::isnan(value) ? "NaN" : fmt::format("{:.9g}", value),
                       bits);
  }
  if (type == at::kDouble) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value) ? "NaN" : fmt::format("{:.17g}", value);
  }
  std::string hex = "0x";
  for (size_t i = c10::elementSize(type); i > 0; --i)
    hex += fmt::format("{:02x}", static_cast<unsigned>(at[i - 1]));
  return hex;
}

bool is_nan(const std::byte* at, at::ScalarType type) {
  if (!c10::isFloatingType(type)) return false;
  const at::Tensor one = at::empty({1}, at::TensorOptions().dtype(type));
  std::memcpy(one.data_ptr(), at, c10::elementSize(type));
  return std::isnan(one.item<double>());
}

std::optional<ScheduleFailure> first_difference(const char* what, const NamedTensor& parameter,
                                                const at::Tensor& tensor, const std::byte* run,
                                                const std::byte* wanted, size_t bytes) {
  if (std::memcmp(run, wanted, bytes) == 0) return std::nullopt;
  ScheduleFailure failure;
  failure.kind = "different_bits";
  if (!tensor.defined()) {
    failure.what = fmt::format("{} of {} is absent", what, parameter.name);
    return failure;
  }
  const at::ScalarType type = tensor.scalar_type();
  const size_t size = c10::elementSize(type);
  size_t first = 0;
  while (std::memcmp(run + first, wanted + first, size) == 0) first += size;
  if (is_nan(run + first, type) && !is_nan(wanted + first, type))
    failure.kind = "use_before_completion";
  const bool is_gradient = what[0] == 'g';
  failure.what = fmt::format("{}{}, element {}: {}, must be {}", is_gradient ? "gradient of " : "",
                             parameter.name, first / size, value_text(run + first, type),
                             value_text(wanted + first, type));
  return failure;
}

const StateEntry& entry_of(const StateLayout& layout, const char* what, const std::string& name) {
  const StateKind kind = what[0] == 'g' ? StateKind::gradient : StateKind::parameter;
  const auto found = std::find_if(
      layout.entries.begin(), layout.entries.end(),
      [&](const StateEntry& entry) { return entry.kind == kind && entry.name == name; });
  LOCKSTEP_CHECK(found != layout.entries.end(), "the golden run lacks " + name);
  return *found;
}

}  // namespace

ExploreReference::ExploreReference(const RunPlan& plan) {
  const auto& goldens = plan.goldens;
  for (const GoldenKind kind : {GoldenKind::replay, GoldenKind::invariant})
    if (std::find(goldens.begin(), goldens.end(), to_word(kind)) != goldens.end())
      load_golden(plan, kind);
}

void ExploreReference::load_golden(const RunPlan& plan, GoldenKind kind) {
  const Scenario& scenario = plan.scenario;
  const GoldenItem item = golden_item(scenario, kind, false);
  const int64_t count = scenario.steps + 1;
  const auto at_once = [] { return deadline_after(std::chrono::milliseconds(1)); };
  auto stream = StateStream::in_memory({.slot_bytes = item.bytes, .slots = count});
  run_golden(scenario, kind, plan.replay, false, *stream, at_once());
  const Setup setup = set_up(scenario, scenario.dtype, 0);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* state = stream->begin_read(0, i, at_once());
    LOCKSTEP_CHECK(state != nullptr, "a golden run ended early");
    Values values;
    const auto add = [&](const char* what, const NamedTensor& parameter) {
      const StateEntry& entry = entry_of(item.layout, what, parameter.name);
      const auto place = static_cast<size_t>(&entry - item.layout.entries.data());
      const bool present =
          state[item.layout.presence_offset + static_cast<int64_t>(place)] != std::byte{0};
      const std::byte* bytes = present ? state + entry.offset : kAbsent;
      const size_t size = present ? static_cast<size_t>(entry.bytes) : sizeof kAbsent;
      values.bytes.insert(values.bytes.end(), bytes, bytes + size);
      values.hash = hash64(bytes, size, values.hash);
    };
    for (const NamedTensor& parameter : setup.training.parameters) add("parameter", parameter);
    for (const NamedTensor& parameter : setup.training.parameters)
      if (parameter.tensor.requires_grad()) add("gradient", parameter);
    if (i > 0) steps_.push_back(std::move(values));
    stream->end_read(0);
  }
  kind_ = to_word(kind);
}

void ExploreReference::remember(int64_t step, const Training& training) {
  LOCKSTEP_CHECK(static_cast<size_t>(step) == steps_.size() + 1, "steps come in their order");
  Values& values = steps_.emplace_back();
  for_values(training.parameters, [&](const char*, const NamedTensor&, const std::byte* bytes,
                                      size_t size, const at::Tensor&) {
    values.bytes.insert(values.bytes.end(), bytes, bytes + size);
    values.hash = hash64(bytes, size, values.hash);
  });
}

std::optional<ScheduleFailure> ExploreReference::difference(int64_t rank, int64_t step,
                                                            const Training& training) const {
  const Values& wanted = steps_[static_cast<size_t>(step - 1)];
  uint64_t hash = 0;
  for_values(training.parameters,
             [&](const char*, const NamedTensor&, const std::byte* bytes, size_t size,
                 const at::Tensor&) { hash = hash64(bytes, size, hash); });
  if (hash == wanted.hash) return std::nullopt;
  std::optional<ScheduleFailure> failure, of_gradient;
  size_t offset = 0;
  for_values(training.parameters, [&](const char* what, const NamedTensor& parameter,
                                      const std::byte* bytes, size_t size,
                                      const at::Tensor& tensor) {
    auto& first = what[0] == 'g' ? of_gradient : failure;
    if (!first && offset + size <= wanted.bytes.size())
      first = first_difference(what, parameter, tensor, bytes, wanted.bytes.data() + offset, size);
    offset += size;
  });
  if (of_gradient) failure = of_gradient;  // what comes first in a step
  if (!failure) failure = ScheduleFailure{"different_bits", rank, step, "a gradient is absent"};
  failure->rank = rank;
  failure->step = step;
  return failure;
}

namespace {

struct MicroBatch {
  Batch samples;
  double share = 1;  // of its shard
};

// Of each step, those of a rank's one shard, or of its virtual ones.
std::vector<std::vector<MicroBatch>> samples_of(const Scenario& scenario, const Batch& data,
                                                int64_t rank) {
  Split split(scenario);
  const Scenario wide = with_rank_per_shard(scenario);
  const ShardRange shards = shards_of_rank(shards_of(scenario), scenario.world_size, rank);
  std::vector<std::vector<MicroBatch>> steps;
  for (int64_t step = 1; step <= scenario.steps; ++step) {
    auto& parts = steps.emplace_back();
    for (int64_t number = shards.begin; number < shards.end; ++number) {
      const Batch shard = select(data, split.shard(step, number));
      const double share = loss_share(wide, shard.input.size(0), split.batch_samples(step));
      for (Batch& samples : micro_batches(shard, scenario.accumulate_steps))
        parts.push_back({std::move(samples), share});
    }
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
  std::vector<std::vector<MicroBatch>> steps;
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
        mutants_(make_race_mutants(
            *wire_, scenario_.mutants, [this] { return step_; },
            [this](size_t count) { return group_.scheduler_.pick(count); })),
        native_(make_native_waits(*mutants_)),
        batch_(*native_, std::chrono::milliseconds(scenario_.timeouts.collective_ms)),
        together_(batch_, rank, scenario_.world_size, shards_of(scenario_)),
        hooks_(self_.trained, [this](size_t place) {
          say([&] { return "has the gradient of " + self_.names[place]; });
        }) {}
  ~Run() { self_.training.model->normalize_over(nullptr); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void run() {
    ReducerOptions options = reducer_options_of(scenario_, rank_);
    options.shards_together =
        self_.training.model->normalize_over(&batch_) && has_virtual_shards(scenario_);
    if (options.shards_together) self_.training.model->normalize_over(&together_);
    say([] { return std::string("makes its reducer"); });
    // Without decorators where there is nothing to decorate: this is the hot path.
    Communicator& communicator = is_native() ? *native_
                                 : !scenario_.mutants.empty()
                                     ? static_cast<Communicator&>(*mutants_)
                                     : *wire_;
    reducer_ = make_reducer(options, self_.training.parameters, self_.training.buffers,
                            communicator, probe_);
    takes_turns_ = options.shards_together;
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

  void step(int64_t step) {
    step_ = step;
    Training& training = self_.training;
    const std::vector<MicroBatch>& parts = self_.steps[static_cast<size_t>(step - 1)];
    clear_gradients(training.parameters, scenario_.zero_grad);
    const auto compute = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i)
        micro_batch(step, parts[i].samples, parts[i].share,
                    scenario_.accumulate_sync == "each" || i + 1 == parts.size());
    };
    const auto each = static_cast<size_t>(scenario_.accumulate_steps);
    if (takes_turns_)
      together_.run(training, *reducer_,
                    [&](size_t shard) { compute(shard * each, (shard + 1) * each); });
    else
      compute(0, parts.size());
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
        loss_of(scenario_.loss, output, batch.target, shards_of(scenario_), share);
    say([] { return std::string("begins its backward"); });
    if (synchronizes) {
      native_->begin_backward();
      reducer_->before_backward(self_.training.model->outputs(output));
    }
    loss.backward();
    say([] { return std::string("ends its backward"); });
    if (!synchronizes) return;
    reducer_->after_backward();
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
  int64_t step_ = 0;
  const std::unique_ptr<Communicator> wire_, mutants_, native_;
  RankBatch batch_;
  ShardsTogether together_;  // of virtual shards that meet in a layer
  bool takes_turns_ = false;
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
