#pragma once

#include <optional>
#include <string>

#include "scenarios/base/error.h"
#include "sim/des/job.h"
#include "sim/des/result.h"

namespace lockstep {

// One job in virtual time, by one of five engines. They give the same nanoseconds wherever more
// than one of them applies; L4 draws the same distribution from other numbers.

struct SimulateOptions {
  std::optional<Engine> engine;  // nothing: the cheapest that is exact for this job
  int64_t threads = 0;           // 0: as many as there are cores. The result is the same.
};

// "L0" ... "L4", or bad input.
Expected<Engine> engine_of(const std::string& word);

// Why this engine is not exact for the job ("ranks have links of their own"); empty: it is.
std::string why_not(const Job& job, Engine engine);

// The cheapest exact engine: L3, L2, L1, in this order. L0 and L4 are only taken when asked for.
Engine cheapest_engine(const Job& job);

// Runs the job. `sink` (may be empty) gets every rank's way through every step, as it is made; then
// every rank is a member of its own. Blocks until done; memory is O(ranks + steps). Bad input:
// problems_of(job), or an engine that is not exact for it.
Expected<SimulatedRun> simulate(const Job& job, const SimulateOptions& options = {},
                                const TraceSink& sink = {});

}  // namespace lockstep
