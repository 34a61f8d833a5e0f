#include "sim/plan/comparing.h"

#include "scenarios/manifest.h"
#include "sim/plan/agreement.h"

namespace lockstep {
namespace {

constexpr int64_t kLargeModelInterval = 10;

bool is_large(const Scenario& scenario) {
  const auto manifest = manifest_of(scenario.model, scenario.dtype);
  if (!manifest) return false;
  int64_t elements = 0;
  for (const TensorSpec& parameter : manifest->parameters) elements += parameter.numel();
  return elements >= kLargeModelElements;
}

}  // namespace

std::string why_every_step(const Scenario& scenario) {
  if (!AgreementRule(scenario).is_simple()) return "ranks do not agree after every step";
  for (const std::string& lane : scenario.lanes)
    if (lane == "rounding" || lane == "communication")
      return "lane " + lane + " needs the state before each step";
  if (scenario.checkpoint.kind != "none") return "a resume is compared with the steps around it";
  return "";
}

int64_t comparison_interval(const RunPlan& plan) {
  const Scenario& scenario = plan.scenario;
  if (scenario.compare_every > 0) return scenario.compare_every;
  const bool every = !why_every_step(scenario).empty() || !scenario.mutants.empty();
  return every || !is_large(scenario) ? 1 : kLargeModelInterval;
}

bool is_compared(const RunPlan& plan, int64_t start_step, int64_t step) {
  return step <= start_step + 1 || step == plan.scenario.steps || step % plan.compare_every == 0;
}

int64_t comparison_number(const RunPlan& plan, int64_t start_step, int64_t step) {
  if (step <= start_step + 1) return step - start_step;
  const int64_t every = plan.compare_every;
  const int64_t last_one = step == plan.scenario.steps && step % every != 0 ? 1 : 0;
  return 1 + step / every - (start_step + 1) / every + last_one;
}

}  // namespace lockstep
