#include "sim/cli/simulate_uses.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/des/job_of_plan.h"

namespace lockstep {
namespace {

std::string always(const SimulatedWith&) { return ""; }

std::string one_run(const SimulatedWith& with) {
  return with.verb.predict.empty() ? "" : "--predict tells many runs, none of them rank by rank";
}

bool has_table(const SimulatedWith& with) { return !with.machine.cost.table.empty(); }

template <class Matches>
bool any_plan(const SimulatedWith& with, Matches matches) {
  return std::any_of(with.plans.begin(), with.plans.end(), matches);
}

bool is_hierarchical(const SimulatedWith& with) {
  return any_plan(with, [&](const RunPlan& plan) {
    return algorithm_of(plan.scenario, with.machine) == Algorithm::hierarchical;
  });
}

std::string needs_ranks(const SimulatedWith& with) {
  const bool alone = *std::max_element(with.worlds.begin(), with.worlds.end()) == 1;
  return alone ? "one rank sends nothing" : "";
}

std::string needs_no_table(const SimulatedWith& with) {
  if (has_table(with)) return "this machine is a table of measured collectives";
  return needs_ranks(with);
}

std::string link(const SimulatedWith& with) {
  if (is_hierarchical(with) && with.machine.cost.ranks_per_host == 1)
    return "with one rank a host only what is across hosts counts (--across-...)";
  return needs_ranks(with);
}

// Does any all-reduce take the time of another link between its ranks, or another one's?
bool link_differs(const SimulatedWith& with, const CostModel& other) {
  CostModel cost = with.machine.cost, changed = other;
  for (const RunPlan& plan : with.plans)
    for (const int64_t ranks : with.worlds) {
      cost.algorithm = changed.algorithm = algorithm_of(plan.scenario, with.machine);
      if (cost.algorithm == Algorithm::hierarchical && goes_across(cost, ranks)) return true;
      if (!(flat_link(cost, ranks) == flat_link(changed, ranks))) return true;
    }
  return false;
}

// `changed`: the machine with nothing said of what the option says.
std::string across(const SimulatedWith& with, const CostModel& changed) {
  if (has_table(with)) return "this machine is a table of measured collectives";
  if (link_differs(with, changed)) return "";
  const int64_t inside = with.machine.cost.ranks_per_host;
  const int64_t most = *std::max_element(with.worlds.begin(), with.worlds.end());
  if (inside == 1) return "no hosts are told apart without --ranks-per-host";
  if (most <= inside) return fmt::format("all ranks are on one host of {}", inside);
  return "of a link within a host and one between them the slower counts, which is the former";
}

std::string across_latency(const SimulatedWith& with) {
  CostModel changed = with.machine.cost;
  changed.across.alpha_ns = 0;
  return across(with, changed);
}

std::string across_bandwidth(const SimulatedWith& with) {
  CostModel changed = with.machine.cost;
  changed.across.beta_fs_per_byte = 0;
  return across(with, changed);
}

std::string hosts(const SimulatedWith& with) {
  const CostModel& cost = with.machine.cost;
  if (with.verb.mtbf_hours) return "";
  if (has_table(with)) return "this machine is a table of measured collectives";
  const bool shares_cores = cost.core_fs_per_byte > 0 && cost.cores_per_host > 0;
  if (shares_cores || is_hierarchical(with)) return needs_ranks(with);
  CostModel changed = cost;
  changed.ranks_per_host = 1;
  if (link_differs(with, changed)) return "";
  return "every collective takes what it takes without it: of a link within a host and one between "
         "them the slower counts, and here that is the former, or the only one";
}

std::string real_compute(const SimulatedWith& with) {
  const bool real =
      any_plan(with, [](const RunPlan& plan) { return plan.scenario.compute.kind == "real"; });
  return real ? "" : "compute is emulated: the scenario says how long it takes";
}

std::string world(const SimulatedWith& with) {
  return with.verb.predict.find("worlds=") == std::string::npos
             ? ""
             : "--predict says numbers of ranks itself";
}

std::string long_run(const SimulatedWith& with) {
  return with.verb.mtbf_hours ? "" : "without --mtbf-hours no host fails";
}

#define LOCKSTEP_GIVEN(member) [](const SimulateVerb& verb) { return verb.member.has_value(); }
#define LOCKSTEP_SAID(member) [](const SimulateVerb& verb) { return !verb.member.empty(); }

}  // namespace

const std::vector<OptionUse>& option_uses() {
  static const std::vector<OptionUse> kUses = {
      {"--world-size", LOCKSTEP_GIVEN(ranks), world},
      {"--steps", LOCKSTEP_GIVEN(steps), always},
      {"--predict", LOCKSTEP_SAID(predict), always},
      {"--average", LOCKSTEP_SAID(average), always},
      {"--engine", LOCKSTEP_SAID(engine), always},
      {"--threads", [](const SimulateVerb& verb) { return verb.threads > 0; }, always},
      {"--machine", LOCKSTEP_SAID(machine), always},
      {"--algorithm", LOCKSTEP_SAID(algorithm), needs_no_table},
      {"--latency-us", LOCKSTEP_GIVEN(latency_us), link},
      {"--bandwidth-mb-per-s", LOCKSTEP_GIVEN(bandwidth_mb_per_s), link},
      {"--ranks-per-host", LOCKSTEP_GIVEN(ranks_per_host), hosts},
      {"--across-latency-us", LOCKSTEP_GIVEN(across_latency_us), across_latency},
      {"--across-bandwidth-mb-per-s", LOCKSTEP_GIVEN(across_bandwidth_mb_per_s), across_bandwidth},
      {"--channels", LOCKSTEP_GIVEN(channels), needs_no_table},
      {"--overlap-slowdown", LOCKSTEP_GIVEN(overlap_slowdown), needs_ranks},
      {"--forward-ms", LOCKSTEP_GIVEN(forward_ms), real_compute},
      {"--backward-ms", LOCKSTEP_GIVEN(backward_ms), real_compute},
      {"--noise", LOCKSTEP_SAID(noise), always},
      {"--mtbf-hours", LOCKSTEP_GIVEN(mtbf_hours), always},
      {"--work-hours", LOCKSTEP_GIVEN(work_hours), long_run},
      {"--checkpoint-s", LOCKSTEP_GIVEN(checkpoint_s), long_run},
      {"--checkpoint-every-s", LOCKSTEP_GIVEN(checkpoint_every_s), long_run},
      {"--restart-s", LOCKSTEP_GIVEN(restart_s), long_run},
      {"--json", LOCKSTEP_SAID(json), always},
      {"--trace", LOCKSTEP_SAID(trace), one_run},
      {"--svg", LOCKSTEP_SAID(svg), always},
      {"--out", LOCKSTEP_SAID(out), one_run},
  };
  return kUses;
}

#undef LOCKSTEP_GIVEN
#undef LOCKSTEP_SAID

InputErrors unused_options(const SimulateVerb& verb, const MachineModel& machine,
                           const std::vector<RunPlan>& plans) {
  SimulatedWith with{verb, machine, plans, {}};
  const auto axes = verb.predict.empty() ? Expected<PredictAxes>(PredictAxes())
                                         : predict_axes(verb.predict, plans.front());
  if (!axes) return axes.errors();
  with.worlds = axes.value().worlds;
  if (with.worlds.empty() && verb.ranks) with.worlds = {*verb.ranks};
  if (with.worlds.empty())
    for (const RunPlan& plan : plans) with.worlds.push_back(ranks_of(plan.scenario));
  InputErrors errors;
  for (const OptionUse& use : option_uses()) {
    if (!use.given(verb)) continue;
    if (const std::string why = use.why_not(with); !why.empty())
      errors.push_back(option_error(fmt::format("{} changes nothing here: {}", use.name, why),
                                    "to leave it out"));
  }
  return errors;
}

}  // namespace lockstep
