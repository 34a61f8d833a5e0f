#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "scenarios/base/check.h"
#include "scenarios/base/hash.h"
#include "scenarios/devices.h"
#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/emulated.h"
#include "scenarios/workloads/loss_scaling.h"
#include "scenarios/workloads/placed_model.h"
#include "scenarios/workloads/spread_model.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

// One generator, data before the model, as published single-file programs do it.
Setup set_up_in_one_stream(const Scenario& scenario, const std::string& dtype, bool needs_data,
                           bool equal_seeds, const std::vector<c10::Device>& devices) {
  Setup setup;
  RandomSection random(scenario.seed);
  if (needs_data || equal_seeds) setup.data = draw_data(scenario.data, dtype);
  setup.training = build_training(scenario, dtype, devices);
  return setup;
}

}  // namespace

Training build_training(const Scenario& scenario, const std::string& dtype,
                        const std::vector<c10::Device>& devices) {
  Training training;
  training.model = scenario.compute.kind == "emulated" ? build_emulated(scenario, dtype)
                                                       : build_model(scenario.model, dtype);
  if (!devices.empty())
    training.model = devices.front().type() == c10::DeviceType::CUDA
                         ? place_on(devices.front(), std::move(training.model))
                         : spread_over(devices, scenario, *training.model);
  training.draws = std::make_shared<SampleDraws>(scenario.seed);
  training.model->draw_from(training.draws.get());
  training.parameters = training.model->parameters();
  for (NamedTensor& parameter : training.parameters) {
    if (is_frozen(scenario, parameter.name)) parameter.tensor.set_requires_grad(false);
    parameter.device = device_of(scenario, parameter.name);
  }
  training.buffers = training.model->buffers();
  note_buffers(&training);
  training.optimizer = build_optimizer(scenario.optimizer, training.parameters);
  if (scenario.loss_scaling.kind != "none") {
    training.loss_scale = std::make_shared<LossScale>(scenario.loss_scaling);
    training.optimizer =
        with_loss_scale(std::move(training.optimizer), training.loss_scale, training.parameters);
  }
  requantize(training.parameters, scenario.requantize);
  return training;
}

Setup set_up(const Scenario& scenario, const std::string& dtype, int64_t rank,
             const std::vector<c10::Device>& devices) {
  const bool needs_data = rank == 0 || scenario.split.kind != "manual";
  const bool equal_seeds = scenario.rank_seeds == "equal";
  if (scenario.rng == "global_data_first")
    return set_up_in_one_stream(scenario, dtype, needs_data, equal_seeds, devices);
  LOCKSTEP_CHECK(scenario.rng == "per_part", "no rng " + scenario.rng);
  Setup setup;
  if (needs_data) {
    RandomSection random(substream_seed(scenario.seed, "data"));
    setup.data = draw_data(scenario.data, dtype);
  }
  const auto stream = static_cast<uint64_t>(equal_seeds ? 0 : rank);
  RandomSection random(substream_seed(scenario.seed, "model", stream));
  setup.training = build_training(scenario, dtype, devices);
  return setup;
}

void note_buffers(Training* training) {
  training->noted_buffers.clear();
  for (const NamedTensor& buffer : training->buffers)
    training->noted_buffers.push_back({buffer.name, buffer.tensor.detach().clone()});
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
