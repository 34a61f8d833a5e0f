#include "sim/fault/training_mutants.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <utility>

#include "scenarios/base/hash.h"
#include "scenarios/workloads/update.h"
#include "sim/fault/bucket_mutants.h"
#include "sim/fault/mutants.h"

namespace lockstep {
namespace {

constexpr const char* kGradientPlace = "gradient";

bool is_of(const MutantSpec& mutant, int64_t rank, const std::string& parameter) {
  return operation_at(mutant.kind, kGradientPlace) && mutant.rank.value_or(rank) == rank &&
         mutant.tensor.value_or(parameter) == parameter;
}

bool names_address(const MutantSpec& mutant, const std::string& tensor) {
  return mutant.tensor.value_or(tensor) == tensor;
}

at::Tensor find(const NamedTensors& tensors, const std::string& name) {
  for (const NamedTensor& known : tensors)
    if (known.name == name) return known.tensor;
  return {};
}

// Of a parameter that moves to another device and back: what hangs on it in autograd is lost.
void move_there_and_back(at::Tensor parameter) {
  const c10::NoGradGuard no_grad;
  const at::Tensor here = parameter.detach().clone();
  const auto other = here.scalar_type() == at::kDouble ? at::kFloat : at::kDouble;
  parameter.mutable_grad().reset();
  parameter.set_data(here.to(other));
  parameter.set_data(here);
}

// In registration order; gradients add up, as a backward's do.
void backward_without_hooks(const at::Tensor& loss, const Training& training) {
  torch::autograd::variable_list trained;
  for (const NamedTensor& parameter : training.parameters)
    if (parameter.tensor.requires_grad()) trained.push_back(parameter.tensor);
  const auto gradients = torch::autograd::grad({loss}, trained, {}, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < trained.size(); ++i) {
    if (!gradients[i].defined()) continue;
    at::Tensor& sum = trained[i].mutable_grad();
    if (sum.defined())
      sum.add_(gradients[i]);
    else
      sum = gradients[i].clone();
  }
}

// Divides so many times, where once is right.
class DividingHook : public CommHook {
 public:
  explicit DividingHook(int divisions) : divisions_(divisions) {}

  Finish start(const HookBucket& bucket, HookGroup& group) override {
    at::Tensor gradients = bucket.gradients;
    for (int i = 0; i < divisions_; ++i) gradients.div_(group.world_size());
    const CommWorkPtr work = group.all_reduce(gradients);
    return [work, gradients] {
      work->wait();
      return gradients;
    };
  }

 private:
  const int divisions_;
};

class SumUndivided : public DividingHook {
 public:
  SumUndivided() : DividingHook(0) {}
};
LOCKSTEP_REGISTER_COMM_HOOK("mutant sum_undivided", SumUndivided);

class DivideTwice : public DividingHook {
 public:
  DivideTwice() : DividingHook(2) {}
};
LOCKSTEP_REGISTER_COMM_HOOK("mutant divide_twice", DivideTwice);

}  // namespace

const MutantSpec* RankMutants::acts(const char* kind) {
  return acting(scenario_.mutants, kind, rank_, recorder_);
}

// A row of nothing: no samples, and nothing to add up.
at::Tensor StatisticsMutant::all_gather(const at::Tensor& row) {
  at::Tensor rows = ranks_.all_gather(row);
  if (acts("own_batch_norm") == nullptr) return rows;
  at::Tensor own = at::zeros_like(rows);
  own[rank_].copy_(rows[rank_]);
  return own;
}

bool GradientMutants::wants(const std::string& parameter) const {
  for (const MutantSpec& mutant : scenario_.mutants)
    if (is_of(mutant, rank_, parameter)) return true;
  return false;
}

void GradientMutants::watch(const Training& training) {
  hooks_.forget();
  for (const NamedTensor& named : training.parameters) {
    if (!named.tensor.requires_grad() || !wants(named.name)) continue;
    hooks_.add(named.tensor,
               [this, name = named.name, last = std::make_shared<at::Tensor>()](
                   const at::Tensor& gradient) { return seen(name, gradient, last.get()); });
  }
}

at::Tensor GradientMutants::seen(const std::string& parameter, const at::Tensor& gradient,
                                 at::Tensor* last) {
  const c10::NoGradGuard no_grad;
  at::Tensor changed;
  for (size_t i = 0; i < scenario_.mutants.size(); ++i) {
    const MutantSpec& mutant = scenario_.mutants[i];
    if (!is_of(mutant, rank_, parameter) ||
        mutant.step.value_or(recorder_.step()) != recorder_.step())
      continue;
    if (!changed.defined())
      changed = gradient.is_sparse() ? gradient.clone() : gradient.contiguous().clone();
    if (damage(*operation_at(mutant.kind, kGradientPlace), mutant, *last, changed))
      recorder_.append(EventKind::receipt, static_cast<int32_t>(i));
  }
  if (!gradient.is_sparse()) *last = gradient.contiguous().clone();
  return changed.defined() ? changed : gradient;
}

void StepMutants::each(const char* kind, const NamedTensors& tensors,
                       const std::function<void(at::Tensor tensor)>& change) {
  const MutantSpec* mutant = acts(kind);
  if (mutant == nullptr) return;
  for (const NamedTensor& named : tensors)
    if (names_address(*mutant, named.name)) change(named.tensor);
}

void StepMutants::before_construction(const Training& training) {
  each("other_buffers", training.buffers, [this](at::Tensor buffer) {
    const c10::NoGradGuard no_grad;
    if (buffer.is_floating_point()) buffer.add_(0.25 * static_cast<double>(rank_ + 1));
  });
  each("tie_parameters", training.parameters, [&](at::Tensor parameter) {
    for (const NamedTensor& other : training.parameters) {
      if (other.tensor.is_same(parameter) || other.tensor.sizes() != parameter.sizes()) continue;
      return parameter.set_data(other.tensor.detach());
    }
  });
}

// Tensors that the mutant addresses are copies: with memory of their own.
NamedTensors StepMutants::stale(const char* kind, const NamedTensors& known) {
  const MutantSpec* mutant = acts(kind);
  NamedTensors given = known;
  if (mutant == nullptr) return given;
  for (NamedTensor& named : given) {
    if (!names_address(*mutant, named.name)) continue;
    const bool trains = named.tensor.requires_grad();
    named.tensor = named.tensor.detach().clone().set_requires_grad(trains);
    reducers_.push_back(named);
  }
  return given;
}

NamedTensors StepMutants::known_parameters(const NamedTensors& parameters) {
  return stale("replace_parameter", parameters);
}

NamedTensors StepMutants::known_buffers(const NamedTensors& buffers) {
  return stale("reassign_buffer", buffers);
}

void StepMutants::after_construction(const Training& training) {
  {
    const c10::NoGradGuard no_grad;
    for (const NamedTensors* tensors : {&training.parameters, &training.buffers})
      for (const NamedTensor& named : *tensors)
        if (const at::Tensor known = find(reducers_, named.name); known.defined())
          at::Tensor(named.tensor).copy_(known);
  }
  each("move_parameter", training.parameters, move_there_and_back);
}

double StepMutants::share_factor() {
  return acts("undivided_micro_batches") != nullptr
             ? static_cast<double>(scenario_.accumulate_steps)
             : 1;
}

void StepMutants::backward(const at::Tensor& loss, const Training& training) {
  if (acts("grad_without_hooks") != nullptr) return backward_without_hooks(loss, training);
  again_ = acts("second_backward") != nullptr;
  loss.backward({}, /*retain_graph=*/again_);
}

void StepMutants::after_micro_batch(const Training& training) {
  each("lose_accumulated", training.parameters, [](at::Tensor parameter) {
    const c10::NoGradGuard no_grad;
    if (parameter.grad().defined()) parameter.mutable_grad().zero_();
  });
}

void StepMutants::after_reduction(const at::Tensor& loss, const Training& training) {
  if (std::exchange(again_, false)) loss.backward();
  each("clone_gradient", training.parameters, [](at::Tensor parameter) {
    if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad().clone();
  });
  each("zero_for_none", training.parameters, [](at::Tensor parameter) {
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
  });
}

void apply_reducer_mutants(const std::vector<MutantSpec>& mutants, int64_t rank,
                           ReducerOptions* options) {
  for (const MutantSpec& mutant : mutants) {
    if (mutant.rank.value_or(rank) != rank) continue;
    CommHookOptions& hook = options->comm_hook;
    if (mutant.kind == "ignore_parameter") options->ignored.push_back(mutant.tensor.value());
    if (mutant.kind == "hook_path") hook.kind = "allreduce";
    if (mutant.kind == "cast_early") hook.kind = "bf16";
    if (mutant.kind == "skip_hook") {
      hook.kind = "post_local_sgd";
      hook.start_step = mutant.step.value_or(1);
    }
    if (mutant.kind != "sum_undivided" && mutant.kind != "divide_twice") continue;
    hook.kind = "registered";
    hook.name = "mutant " + mutant.kind;
  }
}

// As if another seed had been set: rank 0's weights then go to all.
void TrainingMutants::use_other_weights(Training* training) const {
  const RandomSection random(
      substream_seed(scenario_.seed, "other weights", static_cast<uint64_t>(rank_)));
  const std::string dtype =
      training->parameters.front().tensor.scalar_type() == at::kDouble ? "float64" : "float32";
  const Training other = build_training(scenario_, dtype);
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < other.parameters.size(); ++i)
    at::Tensor(training->parameters[i].tensor).copy_(other.parameters[i].tensor);
}

void TrainingMutants::at_start(Training* training) {
  if (acts("other_weights")) use_other_weights(training);
  if (!acts("stale_momentum")) return;
  NamedTensors state = training->optimizer->state();
  for (NamedTensor& item : state) {
    if (item.tensor.defined() && !item.tensor.is_floating_point()) continue;  // a counter
    for (const NamedTensor& parameter : training->parameters)
      if (item.name.substr(0, item.name.rfind('.')) == parameter.name)
        item.tensor = parameter.tensor.detach().abs() + 0.125;
  }
  training->optimizer->load(state);
}

// As an optimizer that has not made a step yet.
void TrainingMutants::after_resume(Training* training) {
  if (!acts("lose_momentum")) return;
  const c10::NoGradGuard no_grad;
  NamedTensors state = training->optimizer->state();
  for (NamedTensor& item : state)
    if (item.tensor.defined()) item.tensor = at::zeros_like(item.tensor);
  training->optimizer->load(state);
}

void TrainingMutants::have_samples() {
  for (const char* kind : {"swap_shards", "stale_shard", "shift_shard"}) acts(kind);
}

void TrainingMutants::watch(const Training& training) {
  if (scenario_.clipping.kind != "value" || scenario_.reducer.kind == "manual") return;
  bool wanted = false;
  for (const MutantSpec& mutant : scenario_.mutants)
    wanted = wanted || mutant.kind == "clip_before_sum";
  if (!wanted) return;
  hooks_.forget();
  const double most = scenario_.clipping.options.number("max_value");
  for (const NamedTensor& named : training.parameters) {
    if (!named.tensor.requires_grad()) continue;
    hooks_.add(named.tensor, [this, most](const at::Tensor& gradient) {
      return acts("clip_before_sum") ? gradient.clamp(-most, most) : gradient;
    });
  }
}

void TrainingMutants::loss_is(const at::Tensor& loss) {
  if (scenario_.loss_scaling.kind == "none" || scenario_.mutants.empty()) return;
  loss_finite_ = loss_finite_ && std::isfinite(loss.item<double>());
}

void TrainingMutants::after_backward(const Training& training) {
  if (scenario_.reducer.kind == "data_parallel" && acts("wrong_divisor")) {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& parameter : training.parameters)
      if (parameter.tensor.grad().defined()) parameter.tensor.grad().div_(scenario_.world_size);
  }
  if (scenario_.reducer.kind == "manual" && acts("clip_before_sum"))
    clip_gradients(scenario_.clipping, training.parameters);
}

void TrainingMutants::update(int64_t step, Training* training) {
  bool usable = unscale(training);
  if (acts("local_skip")) usable = loss_finite_;
  loss_finite_ = true;
  const double factor = acts("wrong_lr")              ? 2
                        : acts("lr_times_world_size") ? static_cast<double>(scenario_.world_size)
                                                      : 1;
  if (factor == 1) return finish_step(scenario_, step, usable, training);
  Scenario wrong = scenario_;
  wrong.optimizer.options.set("lr", factor * scenario_.optimizer.options.number("lr"));
  finish_step(wrong, step, usable, training);
}

}  // namespace lockstep
