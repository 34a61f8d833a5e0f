#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// How far a machine's alternatives are apart where a step is predicted.

// What published steps are taken to be reproducible to: nothing is known better than that.
inline constexpr double kLeastError = 0.005;

// So many times less bandwidth.
void slow_link(double factor, LinkCost* link);
// So many times as long for a byte that the ranks of a host share.
void slow_cores(double factor, CostModel* cost);
// So many times the latency.
void delay_messages(double factor, LinkCost* link);

// The plan with compute so many times as long: of its layers, or where it has none of `machine`,
// whose backward takes twice the forward where nobody says it.
RunPlan with_compute(RunPlan plan, double factor, MachineModel* machine);

// What `other` has instead of the machine's, but for its compute.
Alternative alternative_of(const MachineModel& other, const MachineModel& machine);

// What of a step of `ranks` that took a share in one of `fitted` ranks is at least and at most
// left: in proportion to a rank's peers where they are fewer, and where they are more to log2 of
// the ranks, or to its peers on its host, who share what is there but once (its cores, its PCI
// Express).
struct Growth {
  double least = 1, most = 1;
};
Growth growth_of(int64_t ranks, int64_t fitted, int64_t ranks_per_host);

// A step on each alternative as a multiple of that on the machine, in their order; of one whose
// step may grow with the ranks two. Empty where there are none, or no step. Faults and noise are
// as they are; time-outs end nothing.
Expected<std::vector<double>> steps_of_alternatives(const RunPlan& plan,
                                                    const MachineModel& machine,
                                                    const SimulatedAs& as);

// How far they are from 1, kLeastError at least.
double widest(const std::vector<double>& ratios);
// Of the ratio of two steps, where the same alternative is meant of both.
double widest(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace lockstep
