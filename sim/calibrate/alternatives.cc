#include "sim/calibrate/alternatives.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/des/simulate.h"

namespace lockstep {
namespace {

constexpr int64_t kAlternativeSteps = 3;  // buckets are rebuilt after the first

MachineModel machine_of(MachineModel machine, const Alternative& one) {
  slow_link(one.link_slower, &machine.cost.link);
  slow_link(one.across_slower, &machine.cost.across);
  slow_cores(one.cores_slower, &machine.cost);
  delay_messages(one.latency, &machine.cost.link);
  delay_messages(one.across_latency, &machine.cost.across);
  machine.bucket_ns = one.bucket_ns;
  machine.parameter_ns = one.parameter_ns;
  machine.sync_ns = one.sync_ns;
  machine.rank_spread = one.rank_spread;
  machine.overlap_slowdown = one.overlap_slowdown.value_or(machine.overlap_slowdown);
  return machine;
}

// 1 of nothing.
double times(int64_t value, int64_t of) {
  return of == 0 ? 1 : static_cast<double>(value) / static_cast<double>(of);
}

// 0: none came to its end.
Expected<double> step_ms(const RunPlan& plan, const MachineModel& machine, SimulatedAs as) {
  as.steps = kAlternativeSteps;
  auto planned = job_of_plan(plan, machine, as);
  if (!planned) return planned.errors();
  planned.value().job.collective_ns = 0;
  planned.value().job.rebuild_ns = 0;
  const auto run = simulate(planned.value().job, {});
  if (!run) return run.errors();
  return run.value().failure ? 0.0 : numbers_of(planned.value().job, run.value()).step_ms;
}

}  // namespace

void slow_link(double factor, LinkCost* link) {
  link->beta_fs_per_byte = std::llround(static_cast<double>(link->beta_fs_per_byte) * factor);
}

void slow_cores(double factor, CostModel* cost) {
  cost->core_fs_per_byte = std::llround(static_cast<double>(cost->core_fs_per_byte) * factor);
}

void delay_messages(double factor, LinkCost* link) {
  link->alpha_ns = std::llround(static_cast<double>(link->alpha_ns) * factor);
}

RunPlan with_compute(RunPlan plan, double factor, MachineModel* machine) {
  for (LayerTime& layer : plan.layer_times) {
    layer.forward_ms *= factor;
    layer.backward_ms *= factor;
    layer.ready_ms *= factor;
  }
  if (plan.layer_times.empty()) {
    const double backward_ms = machine->backward_ms.value_or(2);
    machine->forward_ms = machine->forward_ms.value_or(backward_ms / 2) * factor;
    machine->backward_ms = backward_ms * factor;
  }
  return plan;
}

Alternative alternative_of(const MachineModel& other, const MachineModel& machine) {
  const CostModel &cost = other.cost, &of = machine.cost;
  return {.link_slower = times(cost.link.beta_fs_per_byte, of.link.beta_fs_per_byte),
          .across_slower = times(cost.across.beta_fs_per_byte, of.across.beta_fs_per_byte),
          .latency = times(cost.link.alpha_ns, of.link.alpha_ns),
          .across_latency = times(cost.across.alpha_ns, of.across.alpha_ns),
          .cores_slower = times(cost.core_fs_per_byte, of.core_fs_per_byte),
          .bucket_ns = other.bucket_ns,
          .parameter_ns = other.parameter_ns,
          .sync_ns = other.sync_ns,
          .rank_spread = other.rank_spread,
          .overlap_slowdown = other.overlap_slowdown};
}

Growth growth_of(int64_t ranks, int64_t fitted, int64_t ranks_per_host) {
  if (ranks < 2 || fitted < 2) return {};
  const auto of = static_cast<double>(ranks), by = static_cast<double>(fitted);
  const auto on_host = [&](double all) {
    return std::min(all, static_cast<double>(ranks_per_host)) - 1;
  };
  const double shared = on_host(of) / std::max(1.0, on_host(by));
  return {std::min(1.0, (of - 1) / (by - 1)),
          std::max({1.0, std::log2(of) / std::log2(by), shared})};
}

Expected<std::vector<double>> steps_of_alternatives(const RunPlan& plan,
                                                    const MachineModel& machine,
                                                    const SimulatedAs& asked) {
  std::vector<double> ratios;
  if (machine.alternatives.empty()) return ratios;
  SimulatedAs as = asked;
  const auto base = step_ms(plan, machine, as);
  as.taken_before = true;
  if (!base) return base.errors();
  const int64_t ranks = as.ranks.value_or(ranks_of(plan.scenario));
  for (const Alternative& one : machine.alternatives) {
    if (one.of_hosts && ranks <= machine.cost.ranks_per_host) continue;
    if (ranks == one.not_ranks) continue;
    MachineModel other = machine_of(machine, one);
    const RunPlan longer = with_compute(plan, one.compute, &other);
    const auto step = step_ms(longer, other, as);
    if (!step) return step.errors();
    if (base.value() == 0 || step.value() == 0) return std::vector<double>();
    const Growth growth = growth_of(ranks, one.sync_ranks, machine.cost.ranks_per_host);
    const double sync_ms = ranks > 1 ? static_cast<double>(one.sync_ns) * 1e-6 : 0;
    ratios.push_back((step.value() - sync_ms * (1 - growth.least)) / base.value());
    if (one.sync_ranks > 0)
      ratios.push_back((step.value() + sync_ms * (growth.most - 1)) / base.value());
  }
  return ratios;
}

double widest(const std::vector<double>& ratios) {
  double most = kLeastError;
  for (const double ratio : ratios) most = std::max(most, std::fabs(ratio - 1));
  return most;
}

double widest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = kLeastError;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::fabs(a[i] / b[i] - 1));
  return most;
}

}  // namespace lockstep
