#include "sim/fault/acts/rank_faults.h"

#include <algorithm>

#include "sim/fault/acts/process_acts.h"

namespace lockstep {

RankFaults::RankFaults(const Scenario& scenario, int64_t rank, Recorder& recorder)
    : scenario_(scenario),
      schedule_(scenario, rank),
      recorder_(recorder),
      any_(!scenario.faults.empty()),
      done_(scenario.faults.size()) {}

bool RankFaults::acts(const Fault& fault) const {
  return primary_ || class_of(fault) == FaultClass::misconfiguration;
}

// Not a second time where its kind has no way back or none that is asked for.
bool RankFaults::act_once(const Act& act) {
  if (!acts_once(*act.fault)) return true;
  const bool fresh = !done_[act.index];
  done_[act.index] = true;
  return fresh;
}

void RankFaults::receipt(const Act& act) {
  recorder_.append(EventKind::receipt, kFirstFault + static_cast<int32_t>(act.index),
                   static_cast<uint64_t>(act.duration_ms * 1e6));
}

void RankFaults::enter(Phase phase) {
  recorder_.enter(phase);
  if (!any_) return;
  for (const Act& act : schedule_.at_phase(phase, recorder_.step())) {
    if (!acts(*act.fault) || class_of(*act.fault) == FaultClass::misconfiguration || !act_once(act))
      continue;
    receipt(act);
    act_out(act);
  }
}

bool RankFaults::at_bucket(int64_t bucket) {
  if (!any_) return false;
  bool skipped = false;
  for (const Act& act : schedule_.at_bucket(bucket, recorder_.step())) {
    if (!acts(*act.fault) || !act_once(act)) continue;
    receipt(act);
    skipped = skipped || act.fault->kind == FaultKind::skip_collective;
    act_out(act);
  }
  return skipped;
}

void RankFaults::at_layer(const std::string& layer) {
  if (!any_ || !primary_) return;
  for (const Act& act : schedule_.at_layer(layer, recorder_.step())) {
    receipt(act);
    act_out(act);
  }
}

const Fault* RankFaults::standing(FaultKind kind) {
  if (!any_) return nullptr;
  for (const Act& act : schedule_.of_kind(kind, std::max(recorder_.step(), 1))) {
    receipt(act);
    return act.fault;
  }
  // Those of the rendezvous have step 0.
  for (const Act& act : schedule_.of_kind(kind, 0)) {
    receipt(act);
    return act.fault;
  }
  return nullptr;
}

const Fault* RankFaults::in_step(FaultKind kind) {
  if (!any_) return nullptr;
  for (const Act& act : schedule_.of_kind(kind, recorder_.step())) {
    if (!acts(*act.fault)) continue;
    receipt(act);
    return act.fault;
  }
  return nullptr;
}

double RankFaults::slow_down() {
  if (!any_ || !primary_) return 1;
  for (const FaultKind kind : {FaultKind::slow, FaultKind::imbalance, FaultKind::wandering})
    for (const Act& act : schedule_.of_kind(kind, recorder_.step())) receipt(act);
  return schedule_.slowdown(recorder_.step());
}

std::vector<Act> RankFaults::acts_of(FaultKind kind) const {
  if (!any_ || !primary_) return {};
  return schedule_.of_kind(kind, recorder_.step());
}

bool RankFaults::any_of_class(FaultClass wanted) const {
  return std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                     [&](const Fault& fault) { return class_of(fault) == wanted; });
}

}  // namespace lockstep
