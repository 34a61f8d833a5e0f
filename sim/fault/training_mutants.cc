#include "sim/fault/training_mutants.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "scenarios/base/hash.h"
#include "scenarios/workloads/clipping.h"
#include "scenarios/workloads/update.h"
#include "sim/fault/acting.h"

namespace lockstep {

TrainingMutants::TrainingMutants(const Scenario& scenario, int64_t rank, Recorder& recorder)
    : scenario_(scenario), rank_(rank), recorder_(recorder) {}

// With a receipt if so.
bool TrainingMutants::acts(const char* kind) {
  return acting(scenario_.mutants, kind, rank_, recorder_) != nullptr;
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
