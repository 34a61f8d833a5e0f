#include "scenarios/workloads/update.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/types.h>

#include <torch/nn/utils/clip_grad.h>  // names Tensor without declaring it

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

// Beyond these a scale says nothing any more (float32 ends at 2^127).
constexpr int64_t kMostLog2 = 120;

int64_t log2_of(double power_of_two) { return std::ilogb(power_of_two); }

class WithLossScale : public Optimizer {
 public:
  WithLossScale(std::unique_ptr<Optimizer> inner, std::shared_ptr<LossScale> scale,
                std::string parameter)
      : inner_(std::move(inner)), scale_(std::move(scale)), prefix_(std::move(parameter) + ".") {}

  void step() override { inner_->step(); }
  double lr() const override { return inner_->lr(); }
  void set_lr(double lr) override { inner_->set_lr(lr); }

  NamedTensors state() const override {
    const auto entry = [&](const char* word, int64_t value) {
      return NamedTensor{prefix_ + word, at::full({1}, value, at::kLong)};
    };
    NamedTensors all = {entry("loss_scale_log2", scale_->scale_log2),
                        entry("good_steps", scale_->good_steps),
                        entry("skipped_steps", scale_->skipped_steps)};
    for (NamedTensor& item : inner_->state()) all.push_back(std::move(item));
    return all;
  }

  void load(const NamedTensors& state) override {
    LOCKSTEP_CHECK(state.size() >= 3 && state[0].name == prefix_ + "loss_scale_log2",
                   "a state without a loss scale");
    scale_->scale_log2 = state[0].tensor.item<int64_t>();
    scale_->good_steps = state[1].tensor.item<int64_t>();
    scale_->skipped_steps = state[2].tensor.item<int64_t>();
    inner_->load({state.begin() + 3, state.end()});
  }

 private:
  std::unique_ptr<Optimizer> inner_;
  std::shared_ptr<LossScale> scale_;
  std::string prefix_;
};

}  // namespace

LossScale::LossScale(const Part& part)
    : scale_log2(log2_of(part.options.number("initial_scale"))),
      growth_log2_(log2_of(part.options.number("growth_factor"))),
      backoff_log2_(log2_of(part.options.number("backoff_factor"))),
      growth_interval_(part.options.integer("growth_interval")) {}

double LossScale::scale() const { return std::ldexp(1.0, static_cast<int>(scale_log2)); }

bool LossScale::unscale(const NamedTensors& parameters) const {
  const c10::NoGradGuard no_grad;
  bool finite = true;
  for (const NamedTensor& parameter : parameters) {
    at::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    gradient.mul_(1 / scale());
    finite = finite &&
             at::isfinite(gradient.is_sparse() ? gradient._values() : gradient).all().item<bool>();
  }
  return finite;
}

void LossScale::end_step(bool skipped) {
  if (skipped) {
    ++skipped_steps;
    good_steps = 0;
    scale_log2 = std::max(scale_log2 + backoff_log2_, -kMostLog2);
  } else if (++good_steps == growth_interval_) {
    good_steps = 0;
    scale_log2 = std::min(scale_log2 + growth_log2_, kMostLog2);
  }
}

double loss_factor(const Scenario& scenario, const Training& training, int64_t step, int64_t rank) {
  if (!training.loss_scale) return 1;
  const Options& options = scenario.loss_scaling.options;
  const bool overflows = options.integer("overflow_step") == step &&
                         (rank < 0 || options.integer("overflow_rank") == rank);
  return overflows ? std::numeric_limits<double>::infinity() : training.loss_scale->scale();
}

std::unique_ptr<Optimizer> with_loss_scale(std::unique_ptr<Optimizer> inner,
                                           std::shared_ptr<LossScale> scale,
                                           const NamedTensors& parameters) {
  return std::make_unique<WithLossScale>(std::move(inner), std::move(scale),
                                         parameters.front().name);
}

void clip_gradients(const Part& clipping, const NamedTensors& parameters) {
  if (clipping.kind == "none") return;
  const std::vector<at::Tensor> tensors = tensors_of(parameters);
  if (clipping.kind == "value") {
    torch::nn::utils::clip_grad_value_(tensors, clipping.options.number("max_value"));
    return;
  }
  LOCKSTEP_CHECK(clipping.kind == "norm", "no clipping " + clipping.kind);
  const double norm_type =
      clipping.options.text("norm_type") == "inf" ? std::numeric_limits<double>::infinity() : 2.0;
  torch::nn::utils::clip_grad_norm_(tensors, clipping.options.number("max_norm"), norm_type);
}

double lr_at(const Part& schedule, double lr, int64_t step) {
  const Options& options = schedule.options;
  const auto before = static_cast<double>(step - 1);  // steps taken
  if (schedule.kind == "none") return lr;
  if (schedule.kind == "step")
    return lr * std::pow(options.number("gamma"),
                         static_cast<double>((step - 1) / options.integer("step_size")));
  if (schedule.kind == "exponential") return lr * std::pow(options.number("gamma"), before);
  if (schedule.kind == "cosine") {
    const double lowest = options.number("min_lr");
    const double part = std::min(1.0, before / options.number("steps_total"));
    return lowest + (lr - lowest) * (1 + std::cos(std::numbers::pi * part)) / 2;
  }
  LOCKSTEP_CHECK(schedule.kind == "linear_warmup", "no lr_schedule " + schedule.kind);
  const double start = options.number("start_factor");
  const double part = std::min(1.0, before / options.number("warmup_steps"));
  return lr * (start + (1 - start) * part);
}

bool unscale(Training* training) {
  return !training->loss_scale || training->loss_scale->unscale(training->parameters);
}

void finish_step(const Scenario& scenario, int64_t step, bool usable, Training* training) {
  if (usable) {
    training->optimizer->set_lr(
        lr_at(scenario.lr_schedule, scenario.optimizer.options.number("lr"), step));
    clip_gradients(scenario.clipping, training->parameters);
    training->optimizer->step();
    requantize(training->parameters, scenario.requantize);
  } else {
    clear_gradients(training->parameters, "zero");
  }
  if (training->loss_scale) training->loss_scale->end_step(!usable);
}

void update(const Scenario& scenario, int64_t step, Training* training) {
  finish_step(scenario, step, unscale(training), training);
}

}  // namespace lockstep
