#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/des/machine_model.h"

namespace lockstep {

// A run beside its simulation on a machine that was fitted without it.
struct ComparedRun {
  std::string but_for_cap;                   // equal of runs that differ in bucket_cap_mb alone
  double simulated_ms = 0, measured_ms = 0;  // mean steps; > 0
};

// How far a further simulated step may be off. Errors e = simulated / measured - 1 of n runs are
// taken as normal around 0: t(n) x sqrt(mean e^2) x sqrt(1 + 1/n), t being Student's 97.5 %
// quantile. Of one run, which its machine was fitted to, nothing is known. Between caps likewise
// from the deviations within each group of runs that differ in nothing else, where these have two
// degrees of freedom at least.
std::optional<Accuracy> accuracy_of(const std::vector<ComparedRun>& runs);

// Student's 97.5 % quantile, of at least 1 degree of freedom.
double student_975(int64_t degrees);

}  // namespace lockstep
