#include "sim/plan/plan.h"

#include <algorithm>

#include "scenarios/scenario.h"
#include "sim/plan/agreement.h"
#include "sim/plan/lanes.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

constexpr int64_t kMostStreamBytes = 16 << 20;  // all slots of one stream
constexpr int64_t kMostShardBytes = 4 << 20;    // one item with the shards of all ranks
constexpr int64_t kMostHeldBytes = 1 << 30;     // a golden run of all steps, with ranks as threads

// Rough sizes of what goldens stream, from the manifest alone.
struct Sizes {
  int64_t gradients = 0;  // of one rank
  int64_t state = 0;      // gradients, buffers, parameters, optimizer state
};

int64_t states_per_parameter(const Part& optimizer) {
  const Options& options = optimizer.options;
  if (optimizer.kind == "adam" || optimizer.kind == "adamw") return options.flag("amsgrad") ? 3 : 2;
  if (optimizer.kind == "adagrad") return 1;
  const int64_t momentum = options.number("momentum") > 0 ? 1 : 0;
  if (optimizer.kind == "sgd") return momentum;
  return 1 + momentum + (options.flag("centered") ? 1 : 0);  // rmsprop
}

Sizes sizes_of(const Scenario& scenario, const std::string& dtype) {
  constexpr int64_t kAlignment = 64;
  const auto manifest = manifest_of(scenario.model, dtype);
  Sizes sizes;
  for (const TensorSpec& parameter : manifest->parameters)
    sizes.gradients += parameter.bytes() + kAlignment;
  sizes.state = sizes.gradients * (2 + states_per_parameter(scenario.optimizer));
  for (const TensorSpec& buffer : manifest->buffers) sizes.state += buffer.bytes() + kAlignment;
  // A step counter of each parameter, and the loss scale's three.
  sizes.state += kAlignment * (static_cast<int64_t>(manifest->parameters.size()) + 3);
  return sizes;
}

// The largest item of any stream; 0 where the model is not known without LibTorch.
int64_t item_bytes(const RunPlan& plan) {
  const Scenario& s = plan.scenario;
  if (!manifest_of(s.model, s.dtype)) return 0;
  const Sizes sizes = sizes_of(s, s.dtype);
  const Sizes largest = sizes_of(s, plan.double_run ? "float64" : s.dtype);
  const int64_t replayed = sizes.state * (has_own_states(s) ? s.world_size : 1);
  return std::max({largest.state, replayed,
                   plan.shards ? sizes.state + s.world_size * sizes.gradients : 0,
                   asks_for(s, Lane::invariant) ? sizes.state + sizes.gradients : 0,
                   plan.watches_states() ? 2 * sizes.state : 0});
}

// A host of ranks as threads holds whole golden runs; processes stream them.
void check_held_bytes(const RunPlan& plan, InputErrors* errors) {
  const int64_t item = item_bytes(plan);
  const bool holds = !plan.goldens.empty() || plan.watches_states();
  if (!plan.threads || !holds || item == 0) return;
  const int64_t steps_max = std::max<int64_t>(1, kMostHeldBytes / item - 1);
  if (plan.scenario.steps <= steps_max) return;
  InputError error;
  error.pointer = "/steps";
  error.message = "/steps is " + std::to_string(plan.scenario.steps) +
                  ": ranks as threads (communicator local) hold the golden states of all steps";
  error.allowed = "at most " + std::to_string(steps_max) + ", or another communicator";
  errors->push_back(std::move(error));
}

void choose_capacities(RunPlan* plan) {
  const Scenario& s = plan->scenario;
  const auto manifest = manifest_of(s.model, s.dtype);
  const auto parameters = manifest ? static_cast<int64_t>(manifest->parameters.size()) : 64;
  const auto buffers = manifest ? static_cast<int64_t>(manifest->buffers.size()) : 0;
  // Phases, parameters ready, two events and a bucket for each collective (two of each layer that
  // normalizes over all ranks), hashes and comparisons; the twice counted double run and 512 events
  // for construction.
  const int64_t per_pass = 8 + 2 * parameters + 4 * (parameters + 2) + 2 * buffers;
  // Shared-out optimizers: collectives for weights and gradients, three a rank for the state.
  const int64_t sharing = shares_optimizer(s) ? 4 * parameters + 6 * s.world_size + 4 : 0;
  // Of each bucket, when its device had it; receipts, and launches where the network has faults.
  const int64_t of_faults =
      s.faults.empty() ? 0 : 3 * (parameters + 2) + 4 * static_cast<int64_t>(s.faults.size());
  const int64_t of_device = s.device == "cpu" ? 0 : parameters + 2;
  // Of every bucket each rank scatters its part; forwards of as many shards as a rank may have.
  const int64_t own_shards = (shards_of(s) + s.world_size - 1) / s.world_size;
  const int64_t of_trees = has_virtual_shards(s) ? 2 * (s.world_size + 1) * (parameters + 1) : 0;
  const int64_t per_step = own_shards * s.accumulate_steps * (per_pass + of_faults + of_device) +
                           of_trees + 6 + (report_every(s.loss) > 0 ? 1 : 0) +
                           (s.common_checks ? 3 : 0) + sharing;
  const int64_t events = 512 + s.steps * per_step * (plan->double_run ? 2 : 1);
  plan->record_capacity = std::clamp<int64_t>(events, 4'096, 1 << 20);
  if (!manifest) return;
  const Sizes sizes = sizes_of(s, s.dtype);
  const int64_t with_shards = sizes.state + s.world_size * sizes.gradients;
  // Of several averages in a step no one gradient is a rank's own.
  plan->shards = asks_for(s, Lane::replay) && with_shards < kMostShardBytes &&
                 !plan->replay.gathered && !has_own_states(s) && s.accumulate_sync == "last";
  const int64_t item = std::max<int64_t>(1, item_bytes(*plan));
  const int64_t slots = std::clamp<int64_t>(kMostStreamBytes / item, 2, 64);
  plan->stream_slots = std::clamp<int64_t>(s.steps + 1, 2, slots);
}

void plan_layers(RunPlan* plan, InputErrors* errors) {
  auto times = layer_times(plan->scenario);
  if (times)
    plan->layer_times = std::move(times.value());
  else
    errors->insert(errors->end(), times.errors().begin(), times.errors().end());
}

void go_on_from(const CheckpointFile& file, RunPlan* plan) {
  plan->start_step = file.step;
  plan->replay.restart_after_steps = file.resumed_after;
  plan->replay.restart_after_steps.push_back(file.step);
  if (plan->replay.exchange_in_step > 0) plan->replay.exchange_in_step = file.step + 1;
  for (const int64_t step : plan->replay.restart_after_steps)
    if (step < plan->double_start_step) plan->replay.double_restart_after_steps.push_back(step);
  if (plan->double_start_step > 0)
    plan->replay.double_restart_after_steps.push_back(plan->double_start_step);
  plan->resumed_world_size = file.world_size;
}

}  // namespace

Expected<RunPlan> make_plan(const Scenario& scenario, const SimulatedSize& simulated) {
  InputErrors errors;
  RunPlan plan;
  plan.scenario = scenario;
  check_scenario(scenario, simulated, &errors);
  scale_times(&plan.scenario);
  complete_timeouts(scenario, &plan.scenario.timeouts, &errors);
  if (!errors.empty()) return errors;
  if (scenario.compute.kind == "emulated") plan_layers(&plan, &errors);
  plan.threads = scenario.communicator.kind == "local";
  plan.replay = replay_rule_of(scenario);
  plan.agreement = AgreementRule(scenario).text();
  if (const auto file = resumed_file(scenario, &plan.double_start_step, &errors))
    go_on_from(*file, &plan);
  choose_lanes(&plan);
  plan.compare_every = comparison_interval(plan);
  choose_capacities(&plan);
  check_held_bytes(plan, &errors);
  if (!errors.empty()) return errors;
  const auto manifest = manifest_of(scenario.model, scenario.dtype);
  plan.layout_known = manifest != nullptr;
  if (manifest) plan.layout_at_construction = first_layout(scenario, *manifest);
  return plan;
}

std::vector<RunPlan> control_plans(const std::vector<RunPlan>& plans) {
  std::vector<RunPlan> controls;
  for (const RunPlan& plan : plans) {
    const Scenario& s = plan.scenario;
    if (!asks_for(s, Lane::exact) || s.data.kind != "dyadic" || !s.mutants.empty()) continue;
    const auto same_file = [&](const RunPlan& other) { return other.file == plan.file; };
    if (std::any_of(controls.begin(), controls.end(), same_file)) continue;
    Scenario random = s;
    random.data = {"randn", {}};
    for (const char* key : {"samples", "features", "targets"})
      random.data.options.set(key, s.data.options.integer(key));
    random.lanes = {Lane::exact};
    random.expect = {{}};
    random.golden.reset();
    RunPlan control = make_plan(random).value();
    control.file = plan.file;
    control.set = plan.set;
    control.control = "random_data";
    controls.push_back(std::move(control));
  }
  return controls;
}

}  // namespace lockstep
