#include "scenarios/workloads/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scenarios/base/check.h"

namespace lockstep {

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

}  // namespace lockstep
