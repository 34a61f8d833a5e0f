#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// What a live process is doing, as /proc tells it: short reads, nothing that blocks. A process that
// has ended gives a state of 0 or Z. Of several threads it is the main one.
ProcessState read_process_state(pid_t pid);

// "T" or "t": it runs no handler, and SIGKILL alone ends it.
bool is_stopped(const ProcessState& state);

// Whether a handler of it is installed: one that is not would end the process.
bool catches_signal(pid_t pid, int signal);

// The frames that a worker's handler has left (sim/worker/worker_process.h), names demangled:
// "lockstep::TrainingRun::step(long)+0x5f", "libc.so.6+0x3bfd0" where a frame has no name. Nothing
// while the file is absent or unfinished.
std::vector<std::string> read_stack(const std::string& path);

}  // namespace lockstep
