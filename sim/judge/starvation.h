#pragma once

#include <cstdint>

#include "sim/launch/executor.h"

namespace lockstep {

// How long a rank's main thread was ready and had no core after that moment, as its records and
// what the launcher saw of it tell: until its last phase, its error, or the run's failure.
int64_t core_wait_since(const RunOutcome& outcome, int64_t rank, int64_t time_ns);

// The same of all ranks, launcher and zygote added up: by so much, at most, a busy machine may have
// put off what came of that moment.
int64_t core_wait_of_all_since(const RunOutcome& outcome, int64_t time_ns);

}  // namespace lockstep
