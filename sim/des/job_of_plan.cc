#include "sim/des/job_of_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "scenarios/faults.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "sim/plan/layout.h"
#include "sim/plan/ready_times.h"

namespace lockstep {
namespace {

int64_t ns_of(double ms) { return std::llround(ms * 1e6); }

InputError refused(const RunPlan& plan, const std::string& pointer, const std::string& message,
                   const std::string& allowed) {
  InputError error;
  error.file = plan.file;
  error.pointer = pointer;
  error.message = message;
  error.allowed = allowed;
  return error;
}

struct Times {
  int64_t forward_ns = 0, backward_ns = 0;
  std::vector<double> ready_ms;  // by parameter
};

Expected<Times> times_of(const RunPlan& plan, const MachineModel& machine) {
  Times times;
  double backward_ms = 0;
  if (!plan.layer_times.empty()) {
    for (const LayerTime& layer : plan.layer_times) times.forward_ns += ns_of(layer.forward_ms);
    backward_ms = plan.layer_times.front().ready_ms;
  } else {
    if (!machine.backward_ms)
      return refused(plan, "/compute", "compute is real: how long it takes is not known",
                     "emulated compute, --backward-ms (and --forward-ms), or a machine that "
                     "`lockstep calibrate` fitted to this scenario's runs");
    backward_ms = *machine.backward_ms;
    times.forward_ns = ns_of(machine.forward_ms.value_or(backward_ms / 2));
  }
  times.backward_ns = ns_of(backward_ms);
  auto ready_ms = planned_ready_ms(plan, backward_ms);
  if (!ready_ms)
    return refused(plan, "/model",
                   fmt::format("layers of model \"{}\" are not known", plan.scenario.model.kind),
                   "a shipped model");
  times.ready_ms = std::move(*ready_ms);
  return times;
}

// Of what a bucket holds, so many parts in so many are sent.
struct Share {
  int64_t parts = 1, of = 1;
};
Share sent_share(const Scenario& scenario) {
  const bool half = scenario.comm_hook.kind == "fp16" || scenario.comm_hook.kind == "bf16";
  if (!half || scenario.dtype == "bfloat16") return {};
  return {1, scenario.dtype == "float64" ? 4 : 2};
}

// In launch order; no bucket before the one ahead of it.
std::vector<BucketWork> works_of(const RunPlan& plan, const BucketLayout& layout,
                                 const Times& times, const MachineModel& machine,
                                 bool after_backward) {
  const std::vector<int64_t> bytes = bytes_of(plan, layout);
  const Share share = sent_share(plan.scenario);
  std::vector<BucketWork> works;
  int64_t ready_ns = 0;
  for (size_t b = 0; b < layout.size(); ++b) {
    for (const int64_t p : layout[b])
      ready_ns = std::max(ready_ns, ns_of(times.ready_ms[static_cast<size_t>(p)]));
    ready_ns = std::min(ready_ns, times.backward_ns);
    if (after_backward) ready_ns = times.backward_ns;
    const auto copy = static_cast<__int128>(bytes[b]) * machine.copy_fs_per_byte / 1'000'000;
    works.push_back({static_cast<int64_t>(b), bytes[b] * share.parts / share.of, ready_ns,
                     machine.bucket_ns + static_cast<int64_t>(copy)});
  }
  return works;
}

// As backward comes to them; reducer manual goes over them in their own order, after it.
BucketLayout one_a_parameter(const RunPlan& plan) {
  BucketLayout layout;
  for (const auto& bucket : plan.layout_at_construction)
    for (const int64_t p : bucket) layout.push_back({p});
  if (plan.scenario.reducer.kind == "manual") std::sort(layout.begin(), layout.end());
  return layout;
}

bool passes_time_out(const RunPlan& plan, const Part& fault) {
  const Timeouts& timeouts = plan.scenario.timeouts;
  const int64_t limit_ms =
      fault.kind == "slow_constructor" ? timeouts.construction_ms : timeouts.rendezvous_ms;
  return limit_ms > 0 && fault.options.number("duration_ms") >= static_cast<double>(limit_ms);
}

// Faults that are delays or ends in virtual time; of the others some change no time of a step.
void check_faults(const RunPlan& plan, InputErrors* errors, std::vector<std::string>* notes) {
  static const std::set<std::string> kBefore = {"late_start", "slow_constructor", "slow_store"};
  static const std::set<std::string> kNoTime = {"nan", "other_seed"};
  static const std::set<std::string> kNever = {"reset",
                                               "half_open",
                                               "partition",
                                               "other_bucket_cap",
                                               "other_bucket_order",
                                               "skip_collective",
                                               "other_dtype",
                                               "unused_parameter",
                                               "skip_backward",
                                               "fewer_batches",
                                               "duplicate_rank",
                                               "wrong_world_size",
                                               "wrong_address"};
  for (size_t i = 0; i < plan.scenario.faults.size(); ++i) {
    const std::string& kind = plan.scenario.faults[i].kind;
    const Part& fault = plan.scenario.faults[i];
    const std::string phase = phase_of(fault);
    const bool before = phase == "rendezvous" || phase == "construction";
    if (before && !only_delays(fault)) {
      errors->push_back(refused(plan, fmt::format("/faults/{}/phase", i),
                                fmt::format("fault \"{}\" in {} cannot be simulated", kind, phase),
                                "a phase of a step: virtual time begins with the first"));
      continue;
    }
    if (kBefore.contains(kind) && passes_time_out(plan, fault)) {
      errors->push_back(
          refused(plan, fmt::format("/faults/{}/duration_ms", i),
                  fmt::format("fault \"{}\" passes a time-out before the steps, which "
                              "cannot be simulated",
                              kind),
                  "a shorter one: virtual time begins with the first step"));
      continue;
    }
    if (kBefore.contains(kind) || before)
      notes->push_back(kind + " acts before the steps: left out");
    if (kNoTime.contains(kind)) notes->push_back(kind + " changes no time: left out");
    if (kNever.contains(kind))
      errors->push_back(refused(plan, fmt::format("/faults/{}/kind", i),
                                fmt::format("fault \"{}\" cannot be simulated", kind),
                                "what delays or ends a rank, or its network"));
  }
}

void check_reducer(const RunPlan& plan, InputErrors* errors) {
  static const std::set<std::string> kKnown = {"bucketed", "c10d", "flat", "per_parameter",
                                               "manual"};
  if (!kKnown.contains(plan.scenario.reducer.kind))
    errors->push_back(
        refused(plan, "/reducer/kind",
                fmt::format("reducer \"{}\" cannot be simulated", plan.scenario.reducer.kind),
                "bucketed, c10d, flat, per_parameter or manual"));
  else if (!plan.layout_known)
    errors->push_back(
        refused(plan, "/model",
                fmt::format("parameters of model \"{}\" are not known", plan.scenario.model.kind),
                "a shipped model"));
}

// What makes collectives of its own, or buckets that are no sums, is refused; a broadcast more is
// left out.
void check_training(const RunPlan& plan, InputErrors* errors, std::vector<std::string>* notes) {
  const Scenario& s = plan.scenario;
  const auto refuse = [&](bool is, const char* pointer, const std::string& what) {
    if (is) errors->push_back(refused(plan, pointer, what + " cannot be simulated", "none"));
  };
  refuse(s.comm_hook.kind == "powersgd" || s.comm_hook.kind == "registered", "/comm_hook/kind",
         fmt::format("comm hook \"{}\"", s.comm_hook.kind));
  refuse(shares_optimizer(s), "/optimizer_sharding", "a shared-out optimizer");
  refuse(s.join_divide_by.has_value(), "/join", "join");
  refuse(!s.wrapped_modules.empty(), "/wrapped_modules", "a reducer for each module");
  if (!has_cap(plan)) return;
  const Options& reducer = s.reducer.options;
  if (reducer.flag("find_unused_parameters") || reducer.flag("static_graph"))
    notes->push_back("the collective that tells of unused parameters is left out");
  const auto manifest = manifest_of(s.model, s.dtype);
  if (manifest && !manifest->buffers.empty() && reducer.flag("broadcast_buffers"))
    notes->push_back("broadcasts of buffers are left out");
}

Algorithm algorithm_of_communicator(const Scenario& scenario) {
  const Options& options = scenario.communicator.options;
  const std::string word = options.has("algorithm") ? options.text("algorithm") : "ring";
  if (word == "halving_doubling") return Algorithm::halving_doubling;
  if (word == "bcube") return Algorithm::bcube;
  return Algorithm::ring;
}

void fill_layouts(const RunPlan& plan, const SimulatedAs& as, PlannedJob* planned) {
  const std::string& kind = plan.scenario.reducer.kind;
  planned->first_step = planned->settled = plan.layout_at_construction;
  if (kind == "per_parameter" || kind == "manual")
    planned->first_step = planned->settled = one_a_parameter(plan);
  if (!has_cap(plan)) return;
  const Options& options = plan.scenario.reducer.options;
  const int64_t cap = bytes_of_mib(as.cap_mb.value_or(options.number("bucket_cap_mb")));
  if (auto settled = settled_layout(plan, cap)) planned->settled = std::move(*settled);
  if (!plan.replay.rebuild) planned->first_step = planned->settled;
}

// Micro-batches, local steps, and averages of parameters.
void fill_passes(const Scenario& scenario, const SimulatedAs& as, int64_t parameter_bytes,
                 Job* job) {
  job->passes = scenario.accumulate_steps;
  job->each_pass = scenario.accumulate_sync == "each";
  if (scenario.comm_hook.kind == "post_local_sgd")
    job->local_from = scenario.comm_hook.options.integer("start_step");
  job->averaging = as.averaging;
  const Part& averaging = scenario.model_averaging;
  if (as.averaging.empty() && averaging.kind == "periodic")
    job->averaging = {{job->ranks, averaging.options.integer("period"),
                       averaging.options.integer("warmup_steps")}};
  job->averaged_bytes = parameter_bytes;
}

// DDP's own broadcast of the new buckets; c10d::Reducer's are two.
int64_t rebuild_ns(const RunPlan& plan, const Job& job) {
  if (!plan.replay.rebuild || !has_cap(plan)) return 0;
  const int64_t messages = plan.scenario.reducer.kind == "c10d" ? 2 : 1;
  return messages * broadcast_ns(job.cost, 64, job.ranks);
}

std::vector<std::pair<std::string, int64_t>> layer_ready(const RunPlan& plan) {
  std::vector<std::pair<std::string, int64_t>> layers;
  for (const LayerTime& layer : plan.layer_times)
    layers.emplace_back(layer.layer, ns_of(layer.ready_ms));
  return layers;
}

}  // namespace

Expected<PlannedJob> job_of_plan(const RunPlan& plan, const MachineModel& machine,
                                 const SimulatedAs& as) {
  PlannedJob planned;
  InputErrors errors;
  check_reducer(plan, &errors);
  check_faults(plan, &errors, &planned.notes);
  check_training(plan, &errors, &planned.notes);
  if (!errors.empty()) return errors;
  const auto times = times_of(plan, machine);
  if (!times) return times.errors();
  fill_layouts(plan, as, &planned);
  Scenario scenario = plan.scenario;
  scenario.world_size = as.ranks.value_or(ranks_of(scenario));
  scenario.steps = as.steps.value_or(scenario.steps - plan.start_step);
  Job& job = planned.job;
  job.ranks = scenario.world_size;
  job.steps = scenario.steps;
  job.seed = scenario.seed;
  job.load_ns = machine.load_ns;
  job.forward_ns = times.value().forward_ns;
  job.backward_ns = times.value().backward_ns;
  job.optimizer_ns = machine.optimizer_ns;
  job.noise = machine.noise;
  job.cost = machine.cost;
  job.cost.algorithm = machine.algorithm.value_or(algorithm_of_communicator(scenario));
  job.channels = machine.channels;
  job.overlap_slowdown = std::llround(machine.overlap_slowdown * static_cast<double>(kOne));
  job.collective_ns = scenario.timeouts.collective_ms * 1'000'000;
  const bool after = scenario.reducer.kind == "manual" || scenario.reducer.kind == "flat";
  job.first_step = works_of(plan, planned.first_step, times.value(), machine, after);
  job.settled = works_of(plan, planned.settled, times.value(), machine, after);
  for (const int64_t bytes : bytes_of(plan, planned.settled)) planned.parameter_bytes += bytes;
  fill_passes(scenario, as, planned.parameter_bytes, &job);
  job.rebuild_ns = rebuild_ns(plan, job);
  job.schedule = schedule_of(scenario, job.first_step, job.settled, layer_ready(plan));
  if (InputErrors problems = problems_of(job); !problems.empty()) return problems;
  return planned;
}

}  // namespace lockstep
