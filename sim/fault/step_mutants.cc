#include "sim/fault/step_mutants.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "sim/fault/acting.h"

namespace lockstep {
namespace {

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

}  // namespace

const MutantSpec* StepMutants::acts(const char* kind) {
  return acting(scenario_.mutants, kind, rank_, recorder_);
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

}  // namespace lockstep
