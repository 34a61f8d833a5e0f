#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/options.h"

namespace lockstep {

// What goes wrong on purpose (docs/faults.md): a kind of a closed list, an address, and the
// kind's options. The schema says which keys each kind has; these read them.

enum class FaultClass { compute, process, network, meaning };

// The class of a kind of the schema's list; another word aborts.
FaultClass class_of(const Part& fault);

// Absent: all ranks. Of kind partition the ranks of one side are in `ranks` instead.
std::optional<int64_t> rank_of(const Part& fault);
bool acts_on_rank(const Part& fault, int64_t rank);  // whatever the step
std::optional<int64_t> bucket_of(const Part& fault);

// The first and the last step in which it may act, of a run of `steps`. Process faults act once, in
// `step` or the first one; so do the kinds of the network that last for good. 0: before the steps.
struct FaultSteps {
  int64_t first = 1, last = 1;
};
FaultSteps steps_of(const Part& fault, int64_t steps);

// Does it act at one moment only, from which there may be no way back?
bool acts_once(const Part& fault);

// The phase at whose beginning it acts, "" for kinds that act elsewhere (in a collective, in a
// layer, in options of the rank).
std::string phase_of(const Part& fault);

// Is this its kind's only effect: that ranks wait? Such a fault changes no bit, and no run fails by
// it unless a time-out passes.
bool only_delays(const Part& fault);

// Does the kernel limit or lose what the rank sends (`means`)? veth, or auto where it can.
bool by_own_link(const Part& fault);

// The fault of `kind` that acts on this rank, or null.
const Part* find_fault(const std::vector<Part>& faults, const std::string& kind, int64_t rank);

}  // namespace lockstep
