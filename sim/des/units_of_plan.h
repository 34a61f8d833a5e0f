#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/job.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Reducer fsdp: the units whose parameters are gathered and whose gradients are reduce-scattered
// together, as FSDP2's fully_shard() makes them of each block and of the root.

bool holds_parts(const Scenario& scenario);
// Types in which parameters are gathered and gradients reduced (MixedPrecisionPolicy).
std::string gathered_dtype(const Scenario& scenario);
std::string reduced_dtype(const Scenario& scenario);

// The unit of a layer or a parameter by its name, up to the number of its block: "h.3" of
// "h.3.attn.weight"; "block3" of "block3.norm1" where no name has a number by itself. Empty: the
// root's.
std::string unit_of_name(const std::string& name, bool by_itself);

struct UnitsOfPlan {
  ParameterShards parts;
  std::vector<std::string> names;  // of units; the root's is empty
  BucketLayout layout;             // by bucket: of the last unit first, the root's last
  std::vector<BucketWork> works;
};

// How long compute is, of which a scenario of real compute says nothing.
struct ComputeTimes {
  int64_t forward_ns = 0, backward_ns = 0;
};

// Of a scenario of reducer fsdp on so many ranks. Bad input: a model whose layers are not known.
Expected<UnitsOfPlan> units_of_plan(const RunPlan& plan, const MachineModel& machine,
                                    const ComputeTimes& times, int64_t ranks);

}  // namespace lockstep
