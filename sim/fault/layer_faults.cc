#include "sim/fault/layer_faults.h"

#include <ATen/ATen.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "scenarios/base/clock.h"

namespace lockstep {
namespace {

bool any_of_kind(const Scenario& scenario, std::initializer_list<FaultKind> kinds) {
  return std::any_of(scenario.faults.begin(), scenario.faults.end(), [&](const Fault& fault) {
    return std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
  });
}

// The parameter that a fault names, else the first that is trained.
const NamedTensor* parameter_of(const Fault& fault, const Training& training) {
  for (const NamedTensor& parameter : training.parameters)
    if (fault.options.has("tensor") ? parameter.name == fault.options.text("tensor")
                                    : parameter.tensor.requires_grad())
      return &parameter;
  return nullptr;
}

}  // namespace

LayerFaults::LayerFaults(const Scenario& scenario, RankFaults& faults, ComputeClock* clock)
    : scenario_(scenario),
      faults_(faults),
      clock_(clock),
      slows_(scenario.compute.kind == "real" &&
             any_of_kind(scenario, {FaultKind::slow, FaultKind::imbalance, FaultKind::wandering})) {
}

void LayerFaults::watch(const Training& training) {
  hooks_.forget();
  const bool pauses =
      clock_ == nullptr && any_of_kind(scenario_, {FaultKind::slow_layer, FaultKind::launch_stall});
  if (!slows_ && !pauses && !any_of_kind(scenario_, {FaultKind::nan})) return;
  for (const NamedTensor& parameter : training.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    hooks_.add(parameter.tensor, [this, name = parameter.name](const at::Tensor& gradient) {
      return at_gradient(name, gradient);
    });
  }
}

at::Tensor LayerFaults::at_gradient(const std::string& parameter, const at::Tensor& gradient) {
  if (spins_) spin();
  const std::string layer = parameter.substr(0, parameter.rfind('.'));
  if (clock_ == nullptr && passed_.insert(layer).second) {
    faults_.at_layer(layer);
    stall_launches();
  }
  if (parameter != poisoned_) return gradient;
  return at::full_like(gradient, std::numeric_limits<double>::quiet_NaN());
}

void LayerFaults::begin_forward(const Training& training) {
  const double before = std::exchange(slowdown_, faults_.slow_down());
  if (clock_ != nullptr) set_clock();
  slowed_until_ns_ = now_ns();
  if (slowdown_ != before) quota_.reset();
  spins_ = slows_ && slowdown_ > 1 && quota_ == nullptr && !take_cpu_quota();
  const Fault* fault = faults_.in_step(FaultKind::unused_parameter);
  const NamedTensor* parameter = fault != nullptr ? parameter_of(*fault, training) : nullptr;
  if (parameter == nullptr) return;
  left_out_ = parameter->tensor;
  left_out_.set_requires_grad(false);
}

void LayerFaults::end_forward() {
  if (spins_) spin();
  if (!left_out_.defined()) return;
  left_out_.set_requires_grad(true);
  left_out_.reset();
}

void LayerFaults::begin_backward(const Training& training) {
  passed_.clear();
  burden_device(training);
  poisoned_.clear();
  const Fault* fault = faults_.in_step(FaultKind::nan);
  const NamedTensor* parameter = fault != nullptr ? parameter_of(*fault, training) : nullptr;
  if (parameter != nullptr) poisoned_ = parameter->name;
}

// The host is late between the layers of a backward, which its device then waits for.
void LayerFaults::stall_launches() {
  for (const Act& act : faults_.acts_of(FaultKind::launch_stall)) {
    if (passed_.size() == 1) faults_.receipt(act);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(act.duration_ms));
  }
}

// Work in front of backward's in the stream of the rank's device, of which the host knows nothing.
void LayerFaults::burden_device(const Training& training) {
  for (const Act& act : faults_.acts_of(FaultKind::slow_device)) {
    faults_.receipt(act);
    const c10::NoGradGuard no_grad;
    const int64_t size = act.fault->options.integer("size");
    const at::Tensor factor = at::ones(
        {size, size}, at::dtype(at::kFloat).device(training.parameters.front().tensor.device()));
    for (int64_t i = 0; i < act.fault->options.integer("matmuls"); ++i) at::mm(factor, factor);
  }
}

// The emulated layers of this step take so much longer.
void LayerFaults::set_clock() {
  clock_->set_factor(slowdown_);
  for (const Fault& fault : scenario_.faults)
    if (fault.kind == FaultKind::slow_layer)
      clock_->set_pause_before_layer(fault.options.text("layer"), 0);
  for (const Act& act : faults_.acts_of(FaultKind::slow_layer)) {
    faults_.receipt(act);
    clock_->set_pause_before_layer(act.fault->options.text("layer"), act.duration_ms);
  }
}

// Of the part of a core that the rank has when all ranks compute. A loop that spins is no slower
// than the quota says, but takes the core from the other ranks.
bool LayerFaults::take_cpu_quota() {
  bool wanted = false;
  for (const Act& act : faults_.acts_of(FaultKind::slow))
    wanted = wanted || act.fault->options.text("means") != "busy_loop";
  if (!wanted) return false;
  const auto cores = static_cast<double>(std::max(1U, std::thread::hardware_concurrency()));
  const double share = std::min(1.0, cores / static_cast<double>(scenario_.world_size));
  std::string why;
  quota_ = CpuQuota::enter(share / slowdown_, &why);
  return quota_ != nullptr;
}

// What was computed since compute last took its longer time takes the rest of it now.
void LayerFaults::spin() {
  const int64_t begin = now_ns();
  const double more = (slowdown_ - 1) * static_cast<double>(begin - slowed_until_ns_);
  while (now_ns() < begin + static_cast<int64_t>(more)) {
  }
  slowed_until_ns_ = now_ns();
}

}  // namespace lockstep
