#include "sim/des/job_of_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "reducer/shard_tree.h"
#include "scenarios/faults.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "sim/des/modelled.h"
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

// Of `ranks` ranks that each have as many as one of the scenario: V grows with them. Where V is not
// a multiple of the scenario's ranks, nobody knows which of them each is as.
Expected<VirtualShards> virtual_shards_of(const RunPlan& plan, const SimulatedAs& as,
                                          int64_t ranks) {
  const Scenario& scenario = plan.scenario;
  VirtualShards shards{shards_of(scenario), scenario.accumulate_steps, 1};
  if (ranks != scenario.world_size) {
    if (shards.count % scenario.world_size != 0)
      return refused(
          plan, "/reducer/virtual_shards",
          fmt::format("{} virtual shards of {} ranks are not equally many for each, so "
                      "that {} ranks with the work of one of these cannot be simulated",
                      shards.count, scenario.world_size, ranks),
          fmt::format("a multiple of {}, or --set /world_size={}", scenario.world_size, ranks));
    shards.count = shards.count / scenario.world_size * ranks;
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

// DDP's own broadcast of the new buckets; c10d::Reducer's are two.
int64_t rebuild_ns(const RunPlan& plan, const Job& job) {
  if (!plan.replay.rebuild || !has_cap(plan)) return 0;
  const int64_t messages = plan.scenario.reducer.kind == "c10d" ? 2 : 1;
  return messages * broadcast_ns(job.cost, 64, job.ranks);
}

// When backward comes to each layer that has a gradient, in the model's order.
std::vector<std::pair<std::string, int64_t>> layer_ready(const RunPlan& plan, const Times& times) {
  std::vector<std::pair<std::string, int64_t>> layers;
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

Algorithm algorithm_of(const Scenario& scenario, const MachineModel& machine) {
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
  check_modelled(plan, &errors, &planned.notes);
  check_before_steps(plan, &errors);
  if (errors.empty()) check_addresses(plan, scenario, &errors);
  if (!errors.empty()) return errors;
  const auto times = times_of(plan, machine);
  if (!times) return times.errors();
  fill_layouts(plan, as, &planned);
  check_buckets(plan, planned, &errors);
  if (!errors.empty()) return errors;
  Job& job = planned.job;
  job.ranks = scenario.world_size;
  job.steps = scenario.steps;
  job.seed = scenario.seed;
  job.load_ns = machine.load_ns + (job.ranks > 1 ? machine.sync_ns : 0);
  job.forward_ns = times.value().forward_ns;
  job.backward_ns = times.value().backward_ns;
  job.optimizer_ns = machine.optimizer_ns;
  job.noise = machine.noise;
  job.cost = machine.cost;
  job.cost.algorithm = algorithm_of(scenario, machine);
  job.channels = machine.channels;
  job.overlap_slowdown = std::llround(machine.overlap_slowdown * static_cast<double>(kOne));
  job.comm_slowdown = std::llround(machine.comm_slowdown * static_cast<double>(kOne));
  job.collective_ns = scenario.timeouts.collective_ms * 1'000'000;
  const bool after = scenario.reducer.kind == "manual" || scenario.reducer.kind == "flat";
  job.first_step = works_of(plan, planned.first_step, times.value(), machine, after);
  job.settled = works_of(plan, planned.settled, times.value(), machine, after);
  for (const int64_t bytes : bytes_of(plan, planned.settled)) planned.parameter_bytes += bytes;
  fill_passes(scenario, as, planned.parameter_bytes, &job);
  if (InputErrors problems = fill_shards(plan, as, &job); !problems.empty()) return problems;
  job.rebuild_ns = rebuild_ns(plan, job);
  job.schedule =
      schedule_of(scenario, job.first_step, job.settled, layer_ready(plan, times.value()));
  if (InputErrors problems = problems_of(job); !problems.empty()) return problems;
  return planned;
}

namespace {

constexpr int32_t kExceptionCode = 11;  // as kExitException of sim/launch

int64_t ns_of_option(double ms) { return std::llround(ms * 1e6); }

bool hangs(const Act& act) {
  return act.fault->kind == FaultKind::deadlock ||
         (act.fault->kind == FaultKind::stop && act.duration_ms == 0);
}

struct Layers {
  std::vector<BucketWork> first_step, settled;
  std::vector<std::pair<std::string, int64_t>> ready_ns;
};

using Moments = std::shared_ptr<const std::vector<FaultMoments>>;

class OfRank {
 public:
  OfRank(Moments moments, const Layers& layers, int64_t rank, int64_t step)
      : schedule_(std::move(moments), rank), layers_(layers), step_(step) {}

  RankEvents result() {
    result_.compute_factor = std::llround(schedule_.slowdown(step_) * static_cast<double>(kOne));
    for (const PhaseDelays& delays : kDelays)
      for (const Act& act : schedule_.at_phase(delays.phase, step_)) at_phase(delays, act);
    for (const BucketWork& bucket : step_ == 1 ? layers_.first_step : layers_.settled)
      for (const Act& act : schedule_.at_bucket(bucket.bucket, step_)) at_bucket(bucket, act);
    // Of one layer, and between any two that its host launches.
    const auto stalls = schedule_.of_kind(FaultKind::launch_stall, step_);
    for (const auto& [layer, ready_ns] : layers_.ready_ns) {
      std::vector<Act> acts = schedule_.at_layer(layer, step_);
      acts.insert(acts.end(), stalls.begin(), stalls.end());
      for (const Act& act : acts)
        result_.pauses.push_back({.ready_ns = ready_ns, .ns = ns_of_option(act.duration_ms)});
    }
    network();
    return result_;
  }

 private:
  // What delays a phase: of each pass, and of the first.
  struct PhaseDelays {
    Phase phase;
    int64_t RankEvents::*each;
    int64_t RankEvents::*once;
  };
  static constexpr PhaseDelays kDelays[] = {
      {Phase::load, &RankEvents::load_ns, &RankEvents::load_ns},
      {Phase::forward, &RankEvents::forward_ns, &RankEvents::once_forward_ns},
      {Phase::backward, &RankEvents::backward_ns, &RankEvents::once_backward_ns},
      {Phase::wait, &RankEvents::wait_ns, &RankEvents::once_wait_ns},
      {Phase::optimizer, &RankEvents::optimizer_ns, &RankEvents::optimizer_ns}};

  void at_phase(const PhaseDelays& delays, const Act& act) {
    if (RankEvents::End end; ends(act, &end)) {
      end.phase = delays.phase;
      result_.end = end;
    } else {
      result_.*(acts_once(*act.fault) ? delays.once : delays.each) += ns_of_option(act.duration_ms);
    }
  }

  void at_bucket(const BucketWork& bucket, const Act& act) {
    if (RankEvents::End end; ends(act, &end)) {
      end.place = RankEvents::End::Place::bucket;
      end.bucket = bucket.bucket;
      result_.end = end;
    } else {
      result_.pauses.push_back(
          {bucket.ready_ns, ns_of_option(act.duration_ms), true, acts_once(*act.fault)});
    }
  }

  // Gone for good: dead, so that its peers see it go, or hung.
  static bool ends(const Act& act, RankEvents::End* end) {
    if (hangs(act)) return true;
    const auto signal = row_of(act.fault->kind).ends_by;
    if (!signal) return false;
    end->dead = true;
    end->signal = *signal;
    if (*signal == 0)
      end->exit_code = act.fault->options.has("code")
                           ? static_cast<int32_t>(act.fault->options.integer("code"))
                           : kExceptionCode;
    return true;
  }

  void network() {
    for (const FaultKind kind : {FaultKind::latency, FaultKind::jitter})
      for (const Act& act : schedule_.of_kind(kind, step_))
        result_.queue_ns += ns_of_option(act.duration_ms);
    for (const Act& act : schedule_.of_kind(FaultKind::slow_link, step_))
      result_.queue_fs_per_byte += fs_per_byte_of(act.fault->options.number("bandwidth_mb_per_s"));
  }

  const FaultSchedule schedule_;
  const Layers& layers_;
  const int64_t step_;
  RankEvents result_;
};

// Only delays, and none after the step's last bucket: then whoever is held up less by every fault
// is nowhere later, and all leave a step together.
bool only_delays_buckets(const Fault& fault) {
  const auto phase = phase_of(fault);
  const bool after = phase == Phase::wait || phase == Phase::optimizer;
  const bool ends = row_of(fault.kind).ends_by || fault.kind == FaultKind::deadlock ||
                    (fault.kind == FaultKind::stop && !only_delays(fault));
  return !after && !ends;
}

// Of one fault on many ranks.
class Weights {
 public:
  Weights(const FaultMoments& fault, const std::vector<int64_t>& ranks) : fault_(fault) {
    for (const int64_t rank : ranks) of_.push_back(fault.of_rank(rank));
  }
  void add(const std::vector<int64_t>& ranks, int64_t step, std::vector<int64_t>* weights) const {
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool acts = fault_.acts(of_[i], ranks[i], step);
      weights->push_back(acts ? 1 + ns_of_option(fault_.duration_ms(of_[i], step)) : 0);
    }
  }

 private:
  const FaultMoments& fault_;
  std::vector<FaultMoments::OfRank> of_;
};

}  // namespace

Schedule schedule_of(const Scenario& scenario, const std::vector<BucketWork>& first_step,
                     const std::vector<BucketWork>& settled,
                     const std::vector<std::pair<std::string, int64_t>>& layer_ready_ns) {
  Schedule schedule;
  if (scenario.faults.empty()) return schedule;
  const int64_t ranks = ranks_of(scenario);
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const Fault& fault : scenario.faults)
      if (acts_on_rank(fault, rank)) {
        schedule.touched.push_back(rank);
        break;
      }
  const auto kept = std::make_shared<Scenario>(scenario);
  // They refer to the scenario, which lives as long.
  const Moments moments(new std::vector<FaultMoments>(moments_of(*kept)),
                        [kept](const std::vector<FaultMoments>* all) { delete all; });
  const auto layers = std::make_shared<Layers>(Layers{first_step, settled, layer_ready_ns});
  schedule.at = [moments, layers](int64_t rank, int64_t step) {
    return OfRank(moments, *layers, rank, step).result();
  };
  if (!std::all_of(scenario.faults.begin(), scenario.faults.end(), only_delays_buckets))
    return schedule;
  const auto ranks_touched = std::make_shared<std::vector<int64_t>>(schedule.touched);
  const auto weights = std::make_shared<std::vector<Weights>>();
  for (const FaultMoments& fault : *moments) weights->emplace_back(fault, *ranks_touched);
  schedule.weigh = [moments, weights, ranks_touched](int64_t step) {
    std::vector<int64_t> all;
    all.reserve(weights->size() * ranks_touched->size());
    for (const Weights& of_fault : *weights) of_fault.add(*ranks_touched, step, &all);
    return all;
  };
  return schedule;
}

}  // namespace lockstep
