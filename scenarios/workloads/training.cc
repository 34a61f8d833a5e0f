#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "scenarios/base/check.h"
#include "scenarios/base/hash.h"
#include "scenarios/workloads/models.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

// One generator, data before the model, as published single-file programs do it.
Setup set_up_in_one_stream(const Scenario& scenario, const std::string& dtype, bool needs_data,
                           bool equal_seeds) {
  Setup setup;
  RandomSection random(scenario.seed);
  if (needs_data || equal_seeds) setup.data = draw_data(scenario.data, dtype);
  setup.training = build_training(scenario, dtype);
  return setup;
}

}  // namespace

Training build_training(const Scenario& scenario, const std::string& dtype) {
  Training training;
  training.model = build_model(scenario.model, dtype);
  training.parameters = training.model->parameters();
  training.buffers = training.model->buffers();
  training.optimizer = build_optimizer(scenario.optimizer, training.parameters);
  requantize(training.parameters, scenario.requantize);
  return training;
}

Setup set_up(const Scenario& scenario, const std::string& dtype, int64_t rank) {
  const bool needs_data = rank == 0 || scenario.split.kind != "manual";
  const bool equal_seeds = scenario.rank_seeds == "equal";
  if (scenario.rng == "global_data_first")
    return set_up_in_one_stream(scenario, dtype, needs_data, equal_seeds);
  LOCKSTEP_CHECK(scenario.rng == "per_part", "no rng " + scenario.rng);
  Setup setup;
  if (needs_data) {
    RandomSection random(substream_seed(scenario.seed, "data"));
    setup.data = draw_data(scenario.data, dtype);
  }
  const auto stream = static_cast<uint64_t>(equal_seeds ? 0 : rank);
  RandomSection random(substream_seed(scenario.seed, "model", stream));
  setup.training = build_training(scenario, dtype);
  return setup;
}

std::unique_ptr<Model> build_model(const Part& part, const std::string& dtype) {
  if (part.kind == "linear") return build_linear(part.options, dtype);
  LOCKSTEP_CHECK(part.kind == "mlp", "no model " + part.kind);
  return build_mlp(part.options, dtype);
}

at::Tensor loss_of(const Part& loss, const at::Tensor& output, const at::Tensor& target,
                   int64_t ranks) {
  LOCKSTEP_CHECK(loss.kind == "mse", "no loss " + loss.kind);
  const std::string& reduction = loss.options.text("reduction");
  LOCKSTEP_CHECK(reduction == "mean" || reduction == "sum", "no reduction " + reduction);
  at::Tensor value =
      at::mse_loss(output, target, reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum);
  double factor = loss.options.number("scale");
  if (loss.options.flag("times_world_size")) factor *= static_cast<double>(ranks);
  return factor == 1 ? value : value * factor;
}

void clear_gradients(const NamedTensors& parameters, const std::string& zero_grad) {
  const bool undefine = zero_grad == "none";
  LOCKSTEP_CHECK(undefine || zero_grad == "zero", "no zero_grad " + zero_grad);
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (undefine)
      gradient = at::Tensor();
    else if (gradient.defined())
      gradient.zero_();  // not detach_(): a view into a bucket cannot be detached in place
  }
}

void requantize(const NamedTensors& parameters, int64_t denominator) {
  if (denominator == 0) return;
  c10::NoGradGuard no_grad;
  const auto grid = static_cast<double>(denominator);
  for (const NamedTensor& parameter : parameters) {
    at::Tensor weights = parameter.tensor;
    weights.mul_(grid).round_().div_(grid);
  }
}

}  // namespace lockstep
