#include "sim/plan/lanes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/plan/rules.h"

namespace lockstep {
namespace {

std::string why_no_replica(const Scenario& s) {
  if (s.world_size == 1) return "there is one rank only";
  if (ranks_of(s) == 1)
    return "there is one copy of the weights: replicas are made anew in every forward";
  return "";
}

std::string why_no_rounding(const RunPlan& plan) {
  const Scenario& s = plan.scenario;
  if (s.dtype == "float64") return "the run is in float64 already";
  if (s.dtype == "bfloat16") return "it knows what float32 rounds, not bfloat16";
  if (s.clipping.kind != "none") return "it knows averaged gradients, not clipped";
  if (s.loss_scaling.kind != "none") return "it knows no scaled or skipped gradients";
  if (s.compute.kind == "emulated") return "emulated gradients do not round as computed ones do";
  if (has_virtual_shards(s)) return "it knows shards of ranks, not virtual ones";
  if (s.join_divide_by) return "rank 0 may have no batch";
  if (plan.start_step > 0) return "it needs the steps before the resume too";
  return "";
}

std::string why_no_replay(const RunPlan& plan) {
  const Scenario& s = plan.scenario;
  if (s.communicator.kind == "nccl")
    return "nobody but NCCL knows the order of its additions: lane communication";
  if (s.device == "cuda" && s.golden_device == "cpu")
    return "the golden run is on the cpu, whose bits are not a GPU's";
  if (plan.start_step > 0 && plan.resumed_world_size != s.world_size)
    return "the file was saved by another number of ranks";
  if (s.reducer.kind == "registered" && followed_kind(s) == "none")
    return "a registered reducer's order of additions is its own (/reducer/same_bits_as)";
  if (has_virtual_shards(s)) return "lane invariant compares this reducer with the same process";
  return "";
}

std::string why_no_invariant(const Scenario& s) {
  return has_virtual_shards(s) ? "" : "only reducer invariant computes virtual shards";
}

// Each but the last would be another formula than that of the mean of what ranks computed.
std::string why_no_communication(const Scenario& s) {
  if (s.dtype != "float32") return "its bound is float32's";
  if (s.device == "cuda" && s.golden_device == "cpu")
    return "the ranks' gradients are computed once more, and the cpu's bits are not a GPU's";
  if (s.compute.kind == "emulated") return "emulated gradients are those of no model";
  if (has_virtual_shards(s)) return "it knows shards of ranks, not virtual ones";
  if (s.clipping.kind != "none") return "it knows averaged gradients, not clipped";
  if (s.loss_scaling.kind != "none") return "it knows no scaled or skipped gradients";
  if (s.join_divide_by) return "it divides by all ranks, whoever has a batch";
  if (s.accumulate_sync == "each") return "gradients are averaged more than once a step";
  if (s.reducer.kind == "data_parallel") return "replicas' gradients are added, not averaged";
  if (s.checkpoint.kind != "none") return "it needs every step of one run";
  return "";
}

// By the run itself, whatever its comm hook.
std::string why_not_of_run(Lane lane, const RunPlan& plan) {
  switch (lane) {
    case Lane::replica:
      return why_no_replica(plan.scenario);
    case Lane::replay:
      return why_no_replay(plan);
    case Lane::rounding:
      return why_no_rounding(plan);
    case Lane::communication:
      return why_no_communication(plan.scenario);
    case Lane::invariant:
      return why_no_invariant(plan.scenario);
    case Lane::float64:
    case Lane::exact:
    case Lane::one_device:
      return "";
  }
  return "";
}

// Every hook declares here what lanes can say of it.
std::string why_not_of_hook(Lane lane, const Scenario& scenario) {
  const std::string& hook = scenario.comm_hook.kind;
  if (hook == "none" || hook == "allreduce" || lane == Lane::replica) return "";
  const bool of_statistic = row_of(lane).method == LaneMethod::statistic;
  if (states_bound(scenario) && lane == Lane::communication) return "";
  if (states_bound(scenario) && !of_statistic && lane != Lane::replay)
    return "lane communication holds comm hook " + hook + " to the bound that is stated for it";
  if (hook == "post_local_sgd")
    return of_statistic ? "it knows averaged gradients, not those of single ranks" : "";
  // Lane rounding says that they are not float32's: cause precision.
  if (hook == "fp16" || hook == "bf16")
    return lane == Lane::replay || lane == Lane::rounding
               ? ""
               : "comm hook " + hook + " rounds gradients to half precision on purpose";
  if (hook == "powersgd" && (lane == Lane::replay || !compresses(scenario))) return "";
  if (lane != Lane::replay && !of_statistic) return "";
  const std::string bound =
      lane == Lane::communication
          ? ": /comm_hook/error or /comm_hook/owed can say how much it may lose"
          : "";
  return (hook == "powersgd" ? "PowerSGD loses a part of a gradient on purpose"
                             : "the arithmetic of a registered comm hook is its own") +
         bound;
}

std::string why_not_applicable(Lane lane, const RunPlan& plan) {
  if (plan.scenario.reducer.kind == "none") return "reducer none synchronizes nothing";
  std::string why = why_not_of_run(lane, plan);
  return why.empty() ? why_not_of_hook(lane, plan.scenario) : why;
}

}  // namespace

bool asks_for(const Scenario& scenario, Lane lane) {
  return std::find(scenario.lanes.begin(), scenario.lanes.end(), lane) != scenario.lanes.end();
}

void choose_lanes(RunPlan* plan) {
  const Scenario& s = plan->scenario;
  std::set<Lane> judged;
  for (const LaneRow& row : lanes()) {
    if (!asks_for(s, row.lane)) continue;
    std::string why = why_not_applicable(row.lane, *plan);
    if (!why.empty()) {
      plan->not_applicable.emplace_back(row.lane, std::move(why));
      continue;
    }
    judged.insert(row.lane);
    if (row.method == LaneMethod::bits || row.method == LaneMethod::distance)
      plan->goldens.emplace_back(row.word);
  }
  plan->rounding = judged.contains(Lane::rounding);
  plan->communication = judged.contains(Lane::communication);
  plan->double_run = judged.contains(Lane::float64) && s.dtype != "float64";
  // Emulated gradients lead to other weights than one device's: common checks are not run there.
  const bool compares_with_one_device =
      s.golden || (s.common_checks && s.compute.kind != "emulated");
  if (s.reducer.kind != "none" && compares_with_one_device)
    plan->goldens.emplace_back(to_word(Lane::one_device));
}

}  // namespace lockstep
