#include "scenarios/faults.h"

#include <string_view>

namespace lockstep {
namespace {

std::optional<int64_t> integer(const Fault& fault, std::string_view key) {
  if (!fault.options.has(key)) return std::nullopt;
  return fault.options.integer(key);
}

}  // namespace

std::optional<int64_t> rank_of(const Fault& fault) { return integer(fault, "rank"); }

bool acts_on_rank(const Fault& fault, int64_t rank) {
  if (fault.kind == FaultKind::partition) return true;
  return rank_of(fault).value_or(rank) == rank;
}

std::optional<int64_t> bucket_of(const Fault& fault) { return integer(fault, "bucket"); }

bool acts_once(const Fault& fault) { return row_of(fault.kind).acts != FaultActs::each_step; }

FaultSteps steps_of(const Fault& fault, int64_t steps) {
  const auto phase = phase_of(fault);
  if (phase == Phase::rendezvous || phase == Phase::construction) return {0, 0};
  if (phase == Phase::teardown) return {steps, steps};
  const auto step = integer(fault, "step");
  if (acts_once(fault)) return {step.value_or(1), step.value_or(1)};
  const auto last = integer(fault, "last_step");
  return {step.value_or(1), last.value_or(step.value_or(steps))};
}

std::optional<Phase> phase_of(const Fault& fault) {
  const FaultRow& row = row_of(fault.kind);
  if (row.phase) return row.phase;
  if (fault.options.has("phase")) return phase_from(fault.options.text("phase"));
  if (row.acts == FaultActs::once && !bucket_of(fault)) return Phase::backward;
  return std::nullopt;
}

bool only_delays(const Fault& fault) {
  return row_of(fault.kind).only_delays ||
         (fault.kind == FaultKind::stop && fault.options.has("duration_ms"));
}

bool by_own_link(const Fault& fault) {
  return class_of(fault) == FaultClass::network && fault.options.has("means") &&
         fault.options.text("means") != "decorator";
}

const Fault* find_fault(const std::vector<Fault>& faults, FaultKind kind, int64_t rank) {
  for (const Fault& fault : faults)
    if (fault.kind == kind && acts_on_rank(fault, rank)) return &fault;
  return nullptr;
}

}  // namespace lockstep
