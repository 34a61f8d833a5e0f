#include "sim/des/job_of_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "reducer/shard_tree.h"
#include "scenarios/faults.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "sim/des/modelled.h"
#include "sim/des/units_of_plan.h"
#include "sim/fault/acts/schedule.h"
#include "sim/plan/bucket_layout.h"
#include "sim/plan/rules.h"

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

// All ranks compute as long as the slowest.
void slow_down(double factor, Times* times) {
  if (factor == 1) return;
  const auto scaled = [&](int64_t ns) { return std::llround(static_cast<double>(ns) * factor); };
  times->forward_ns = scaled(times->forward_ns);
  times->backward_ns = scaled(times->backward_ns);
  for (double& ms : times->ready_ms) ms *= factor;
}

Expected<Times> times_of(const RunPlan& plan, const MachineModel& machine, int64_t ranks) {
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
  slow_down(slowest_of(ranks, machine.rank_spread), &times);
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

// Are gradients copied into buckets? One that is a bucket of its own is sent as it is.
bool copies_into_buckets(const RunPlan& plan) {
  if (!has_cap(plan)) return plan.scenario.reducer.kind == "flat";
  if (has_virtual_shards(plan.scenario)) return true;
  return !plan.scenario.reducer.options.flag("gradient_as_bucket_view");
}

// What the reducer costs the compute stream for one bucket, but for its launch.
int64_t filling_ns(const MachineModel& machine, int64_t parameters, int64_t copied_bytes) {
  const auto copy = static_cast<__int128>(copied_bytes) * machine.copy_fs_per_byte / 1'000'000;
  return parameters * machine.parameter_ns + static_cast<int64_t>(copy);
}

// In launch order; no bucket before the one ahead of it.
std::vector<BucketWork> works_of(const RunPlan& plan, const BucketLayout& layout,
                                 const Times& times, const MachineModel& machine,
                                 bool after_backward) {
  const std::vector<int64_t> bytes = bytes_of(plan, layout);
  const Share share = sent_share(plan.scenario);
  const bool copies = copies_into_buckets(plan);
  std::vector<BucketWork> works;
  int64_t ready_ns = 0;
  for (size_t b = 0; b < layout.size(); ++b) {
    for (const int64_t p : layout[b])
      ready_ns = std::max(ready_ns, ns_of(times.ready_ms[static_cast<size_t>(p)]));
    ready_ns = std::min(ready_ns, times.backward_ns);
    if (after_backward) ready_ns = times.backward_ns;
    const int64_t filling_ns_of_bucket =
        filling_ns(machine, static_cast<int64_t>(layout[b].size()), copies ? bytes[b] : 0);
    works.push_back({static_cast<int64_t>(b), bytes[b] * share.parts / share.of, ready_ns,
                     machine.launch_ns, machine.bucket_ns + filling_ns_of_bucket,
                     filling_ns_of_bucket});
  }
  return works;
}

// So that each rank has a part of the same length.
void pad(int64_t ranks, int64_t element_bytes, std::vector<BucketWork>* works) {
  for (BucketWork& work : *works) {
    const int64_t part = ranks * element_bytes;
    work.bytes = (work.bytes + part - 1) / part * part;
  }
}

// As backward comes to them; reducer manual goes over them in their own order, after it.
BucketLayout one_a_parameter(const RunPlan& plan) {
  BucketLayout layout;
  for (const auto& bucket : plan.layout_at_construction)
    for (const int64_t p : bucket) layout.push_back({p});
  if (plan.scenario.reducer.kind == "manual") std::sort(layout.begin(), layout.end());
  return layout;
}

bool passes_time_out(const RunPlan& plan, const Fault& fault) {
  const Timeouts& timeouts = plan.scenario.timeouts;
  const int64_t limit_ms =
      fault.kind == FaultKind::slow_constructor ? timeouts.construction_ms : timeouts.rendezvous_ms;
  return limit_ms > 0 && fault.options.number("duration_ms") >= static_cast<double>(limit_ms);
}

// What acts before the first step may only delay: then the steps are as they were.
void check_before_steps(const RunPlan& plan, InputErrors* errors) {
  for (size_t i = 0; i < plan.scenario.faults.size(); ++i) {
    const Fault& fault = plan.scenario.faults[i];
    const auto phase = phase_of(fault);
    const bool before = phase == Phase::rendezvous || phase == Phase::construction;
    if (before && passes_time_out(plan, fault))
      errors->push_back(
          refused(plan, fmt::format("/faults/{}/duration_ms", i),
                  fmt::format("fault \"{}\" passes a time-out before the steps, which "
                              "cannot be simulated",
                              to_word(fault.kind)),
                  "a shorter one: virtual time begins with the first step"));
  }
}

// Of the ranks and steps that are simulated, whatever the scenario's own numbers are: no fault is
// lost with a rank or a step that is not there.
void check_addresses(const RunPlan& plan, const Scenario& simulated, InputErrors* errors) {
  InputErrors found;
  check_faults(simulated, {}, &found);
  for (const InputError& error : found)
    errors->push_back(refused(plan, error.pointer, error.message, error.allowed));
}

void check_buckets(const RunPlan& plan, const PlannedJob& planned, InputErrors* errors) {
  const size_t buckets = std::max(planned.first_step.size(), planned.settled.size());
  for (size_t i = 0; i < plan.scenario.faults.size(); ++i) {
    const auto bucket = bucket_of(plan.scenario.faults[i]);
    if (bucket && *bucket >= static_cast<int64_t>(buckets))
      errors->push_back(refused(plan, fmt::format("/faults/{}/bucket", i),
                                fmt::format("there is no bucket {}", *bucket),
                                fmt::format("a bucket from 0 to {}", int64_t(buckets) - 1)));
  }
}

// What sim/des/modelled.h does not let in, and what is left out.
void check_modelled(const RunPlan& plan, InputErrors* errors, std::vector<std::string>* notes) {
  for (const InputError& error : not_modelled(plan.scenario, notes))
    errors->push_back(refused(plan, error.pointer, error.message, error.allowed));
  if (errors->empty() && !plan.layout_known)
    errors->push_back(
        refused(plan, "/model",
                fmt::format("parameters of model \"{}\" are not known", plan.scenario.model.kind),
                "a shipped model"));
  const auto manifest = manifest_of(plan.scenario.model, plan.scenario.dtype);
  if (has_cap(plan) && manifest && !manifest->buffers.empty() &&
      plan.scenario.reducer.options.flag("broadcast_buffers"))
    notes->push_back("broadcasts of buffers are left out");
}

void fill_layouts(const RunPlan& plan, const SimulatedAs& as, PlannedJob* planned) {
  const std::string& kind = plan.scenario.reducer.kind;
  if (holds_parts(plan.scenario)) return;  // fill_units()
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

int64_t bytes_of_element(const std::string& dtype) {
  return dtype == "float64" ? 8 : dtype == "bfloat16" ? 2 : 4;
}

// Where V is not a multiple of the scenario's ranks, nobody knows which of them each one of others
// is as.
Expected<VirtualShards> virtual_shards_of(const RunPlan& plan, const SimulatedAs& as,
                                          int64_t ranks) {
  const Scenario& scenario = plan.scenario;
  VirtualShards shards{shards_on(scenario, ranks), scenario.accumulate_steps, 1};
  if (ranks != scenario.world_size) {
    const int64_t count = shards_of(scenario);
    if (count % scenario.world_size != 0)
      return refused(
          plan, "/reducer/virtual_shards",
          fmt::format("{} virtual shards of {} ranks are not equally many for each, so "
                      "that {} ranks with the work of one of these cannot be simulated",
                      count, scenario.world_size, ranks),
          fmt::format("a multiple of {}, or --set /world_size={}", scenario.world_size, ranks));
  }
  if (!as.averaging.empty())
    return refused(plan, "/reducer/kind",
                   "parameters of ranks with virtual shards are never apart, and need no average",
                   "another reducer, or no --average");
  shards.roots = most_roots(shards.count, ranks);
  return shards;
}

// Passes, exchanges, and parts of equal length.
InputErrors fill_shards(const RunPlan& plan, const SimulatedAs& as, Job* job) {
  if (!has_virtual_shards(plan.scenario)) return {};
  const auto shards = virtual_shards_of(plan, as, job->ranks);
  if (!shards) return shards.errors();
  job->shards = shards.value();
  job->passes = (job->shards->count + job->ranks - 1) / job->ranks * job->shards->micro_batches;
  for (auto* works : {&job->first_step, &job->settled})
    pad(job->ranks, bytes_of_element(plan.scenario.dtype), works);
  return {};
}

// Of reducer fsdp: the ranks that hold a copy.
std::optional<InputError> problem_with_groups(const RunPlan& plan, const MachineModel& machine,
                                              int64_t ranks) {
  const Options& options = plan.scenario.reducer.options;
  if (!options.has("shard_ranks")) return std::nullopt;
  const int64_t held_by = options.integer("shard_ranks");
  if (ranks % held_by != 0)
    return refused(plan, "/reducer/shard_ranks",
                   fmt::format("{} ranks are no whole groups of {}", ranks, held_by),
                   fmt::format("a number that divides {}", ranks));
  if (!machine.cost.mesh.empty() && held_by < machine.cost.ranks_per_host)
    return refused(plan, "/reducer/shard_ranks",
                   fmt::format("which links {} of the {} ranks of a host have to each other is "
                               "not known (mesh_links)",
                               held_by, machine.cost.ranks_per_host),
                   fmt::format("a multiple of {}", machine.cost.ranks_per_host));
  return std::nullopt;
}

// Of reducer fsdp: units instead of buckets. Its collectives go in rings, or by hosts.
InputErrors fill_units(const RunPlan& plan, const MachineModel& machine, PlannedJob* planned) {
  if (!holds_parts(plan.scenario)) return {};
  Job& job = planned->job;
  if (auto problem = problem_with_groups(plan, machine, job.ranks)) return {*problem};
  if (job.cost.algorithm != Algorithm::hierarchical) {
    if (machine.algorithm && !is_ring(*machine.algorithm) && !machine.flat_gathers &&
        job.cost.tables.empty())
      planned->notes.push_back(fmt::format(
          "the machine's algorithm {} is one of all-reduces: parameters are gathered and gradients "
          "reduced in rings",
          to_word(*machine.algorithm)));
    job.cost.algorithm = Algorithm::ring;
  }
  auto units = units_of_plan(plan, machine, {job.forward_ns, job.backward_ns}, job.ranks);
  if (!units) return units.errors();
  job.parts = std::move(units.value().parts);
  job.first_step = job.settled = std::move(units.value().works);
  planned->first_step = planned->settled = std::move(units.value().layout);
  return {};
}

// DDP's own broadcast of the new buckets; c10d::Reducer's are two.
int64_t rebuild_ns(const RunPlan& plan, const Job& job) {
  if (!plan.replay.rebuild || !has_cap(plan)) return 0;
  const int64_t messages = plan.scenario.reducer.kind == "c10d" ? 2 : 1;
  return messages * broadcast_ns(job.cost, 64, job.ranks);
}

// When backward comes to each layer that has a gradient, in the model's order.
std::vector<std::pair<std::string, int64_t>> layer_ready(const RunPlan& plan, const Times& times) {
  std::vector<std::pair<std::string, int64_t>> layers;
  if (plan.scenario.faults.empty()) return layers;  // nobody asks for them
  const auto manifest = manifest_of(plan.scenario.model, plan.scenario.dtype);
  for (size_t p = 0; manifest && p < manifest->parameters.size(); ++p) {
    const std::string& parameter = manifest->parameters[p].name;
    const std::string layer = parameter.substr(0, parameter.rfind('.'));
    if (is_frozen(plan.scenario, parameter)) continue;
    if (layers.empty() || layers.back().first != layer)
      layers.emplace_back(layer, std::min(ns_of(times.ready_ms[p]), times.backward_ns));
  }
  return layers;
}

}  // namespace

int64_t shards_on(const Scenario& scenario, int64_t ranks) {
  const int64_t shards = shards_of(scenario);
  return ranks == scenario.world_size ? shards : shards / scenario.world_size * ranks;
}

Algorithm algorithm_of(const Scenario& scenario, const MachineModel& machine) {
  if (machine.flat_gathers && holds_parts(scenario)) return Algorithm::ring;
  if (machine.algorithm) return *machine.algorithm;
  const Options& options = scenario.communicator.options;
  const std::string word = options.has("algorithm") ? options.text("algorithm") : "ring";
  if (word == "halving_doubling") return Algorithm::halving_doubling;
  if (word == "bcube") return Algorithm::bcube;
  return Algorithm::ring;
}

Expected<PlannedJob> job_of_plan(const RunPlan& plan, const MachineModel& machine,
                                 const SimulatedAs& as) {
  PlannedJob planned;
  InputErrors errors;
  Scenario scenario = plan.scenario;
  scenario.world_size = as.ranks.value_or(ranks_of(scenario));
  scenario.steps = as.steps.value_or(scenario.steps - plan.start_step);
  if (!as.taken_before) check_modelled(plan, &errors, &planned.notes);
  check_before_steps(plan, &errors);
  if (errors.empty()) check_addresses(plan, scenario, &errors);
  if (!errors.empty()) return errors;
  const auto times = times_of(plan, machine, scenario.world_size);
  if (!times) return times.errors();
  fill_layouts(plan, as, &planned);
  Job& job = planned.job;
  job.ranks = scenario.world_size;
  job.steps = scenario.steps;
  job.seed = scenario.seed;
  job.load_ns = machine.load_ns + (job.ranks > 1 ? machine.sync_ns : 0);
  job.forward_ns = times.value().forward_ns;
  job.backward_ns = times.value().backward_ns;
  job.optimizer_ns = machine.optimizer_ns;
  job.noise = machine.noise;
  job.cost = cost_of_ranks(machine.cost, job.ranks);
  job.cost.algorithm = algorithm_of(scenario, machine);
  job.cost.stripes |= machine.flat_gathers && holds_parts(scenario);
  job.channels = machine.channels;
  job.overlap_slowdown = std::llround(machine.overlap_slowdown * static_cast<double>(kOne));
  job.comm_slowdown = std::llround(machine.comm_slowdown * static_cast<double>(kOne));
  job.collective_ns = scenario.timeouts.collective_ms * 1'000'000;
  const bool after = scenario.reducer.kind == "manual" || scenario.reducer.kind == "flat";
  job.first_step = works_of(plan, planned.first_step, times.value(), machine, after);
  job.settled = works_of(plan, planned.settled, times.value(), machine, after);
  if (InputErrors problems = fill_units(plan, machine, &planned); !problems.empty())
    return problems;
  check_buckets(plan, planned, &errors);
  if (!errors.empty()) return errors;
  for (const int64_t bytes : bytes_of(plan, planned.settled)) planned.parameter_bytes += bytes;
  fill_passes(scenario, as, planned.parameter_bytes, &job);
  if (InputErrors problems = fill_shards(plan, as, &job); !problems.empty()) return problems;
  job.rebuild_ns = rebuild_ns(plan, job);
  job.schedule =
      schedule_of(scenario, job.first_step, job.settled, layer_ready(plan, times.value()));
  if (InputErrors problems = problems_of(job); !problems.empty()) return problems;
  return planned;
}

}  // namespace lockstep
