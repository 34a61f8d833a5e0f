#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/tools/program/run_watch.h"

namespace lockstep {

// Whether a silent run will ever go on. Slow is no hang: a rank may sleep, download or compute for
// as long as it likes while the others wait for it.

// By the records: every rank that is alive waits in a collective, and somebody waits in one that
// another never comes to, since it has ended, waits in an earlier one or called another instead.
bool nobody_can_go_on(const ProgramRun& run, const std::vector<int64_t>& alive);

// By its stack, which the agent wrote when it was asked for: does it stand in PyTorch, or in
// something of its own or of another library? Loaders of PyTorch wait for their own processes.
bool stands_in_torch(const std::string& folder, int64_t rank);

}  // namespace lockstep
