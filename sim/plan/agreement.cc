#include "sim/plan/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/manifest.h"
#include "scenarios/scenario.h"

namespace lockstep {

AgreementRule::AgreementRule(const Scenario& scenario)
    : scenario_(scenario), shared_steps_(scenario.steps) {
  if (scenario.join_divide_by) split_.emplace(scenario);
  if (scenario.reducer.kind == "none") shared_steps_ = 0;
  if (scenario.model_averaging.kind == "none") return;  // nobody says that ranks may part
  while (shared_steps_ > 0 && !averages_gradients(scenario, shared_steps_)) --shared_steps_;
}

Agreement AgreementRule::of_batches(int64_t step, int64_t rank) const {
  if (!split_ || step == 0 || split_->has_batch(step, rank)) return Agreement::all;
  return step % split_->steps_per_epoch() == 0 ? Agreement::parameters : Agreement::nothing;
}

Agreement AgreementRule::between_ranks(int64_t step, int64_t rank) const {
  if (step <= shared_steps_) return of_batches(step, rank);
  return averages_parameters(scenario_, step) ? Agreement::parameters : Agreement::nothing;
}

Agreement AgreementRule::with_replay(int64_t step, int64_t rank) const {
  return of_batches(step, rank);
}

Agreement AgreementRule::most(int64_t step) const {
  Agreement most = Agreement::nothing;
  for (int64_t rank = 0; rank < scenario_.world_size; ++rank)
    most = std::max(most, between_ranks(step, rank));
  return most;
}

int64_t AgreementRule::last_step(int64_t rank, Agreement least) const {
  int64_t step = scenario_.steps;
  while (step >= 0 && between_ranks(step, rank) < least) --step;
  return step;
}

std::string AgreementRule::text() const {
  if (is_simple()) return "";
  if (scenario_.reducer.kind == "none") return "ranks agree before the first step, and never again";
  if (split_) return "ranks without a batch: nothing until the end of the epoch, then parameters";
  const Options& averaging = scenario_.model_averaging.options;
  return fmt::format(
      "ranks and one device: everything up to step {}, later parameters alone, when they are "
      "averaged: after step {} and every {} steps from there. Each rank and its own replay: "
      "everything",
      shared_steps_, averaging.integer("warmup_steps") + 1, averaging.integer("period"));
}

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
  for (const Lane lane : scenario.lanes)
    if (row_of(lane).method == LaneMethod::statistic)
      return std::string("lane ") + to_word(lane) + " needs the state before each step";
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
