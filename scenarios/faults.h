#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/options.h"
#include "scenarios/fault_kinds.h"

namespace lockstep {

// What goes wrong on purpose (docs/faults.md): a kind, an address, and the kind's options, which
// the schema has checked.
struct Fault {
  FaultKind kind{};
  Options options;
  bool operator==(const Fault&) const = default;
};

inline FaultClass class_of(const Fault& fault) { return row_of(fault.kind).of; }

// Absent: all ranks. Of kind partition the ranks of one side are in `ranks` instead.
std::optional<int64_t> rank_of(const Fault& fault);
bool acts_on_rank(const Fault& fault, int64_t rank);  // whatever the step
std::optional<int64_t> bucket_of(const Fault& fault);

// The first and the last step in which it may act, of a run of `steps`. Process faults act once, in
// `step` or the first one; so do the kinds of the network that last for good. 0: before the steps.
struct FaultSteps {
  int64_t first = 1, last = 1;
};
FaultSteps steps_of(const Fault& fault, int64_t steps);

// Does it act at one moment only, from which there may be no way back?
bool acts_once(const Fault& fault);

// The phase at whose beginning it acts; none for kinds that act elsewhere (in a collective, in a
// layer, in options of the rank).
std::optional<Phase> phase_of(const Fault& fault);

// Is this its only effect: that ranks wait? Such a fault changes no bit, and no run fails by it
// unless a time-out passes.
bool only_delays(const Fault& fault);

// Does the kernel limit or lose what the rank sends (`means`)? veth, or auto where it can.
bool by_own_link(const Fault& fault);

// The fault of `kind` that acts on this rank, or null.
const Fault* find_fault(const std::vector<Fault>& faults, FaultKind kind, int64_t rank);

}  // namespace lockstep
