#pragma once

#include <sys/types.h>

#include <functional>

#include "sim/launch/protocol.h"

namespace lockstep {

class Control;
using TaskFunction = std::function<int(const WorkerTask&, Control&)>;

// Messages on the zygote's socket, in both directions with the launcher's token for the worker:
//   launcher -> zygote  start TOKEN TASK + the worker's end of its control socket
//   zygote -> launcher  ready PID | started TOKEN PID + pidfd | ended TOKEN STATUS TIME_NS ... |
//                       refused TOKEN WHY
//
// Serves the launcher until it is gone; returns the exit code of the zygote. Forks one worker per
// message, after it has made sure that this process has exactly one thread, and reports how each
// ended. In a worker it does not return.
int run_zygote(int fd, const TaskFunction& run);

// In the worker, once it has its log: name, own process group, signals; then the task. Ends the
// process without running static destructors.
[[noreturn]] void be_worker(const WorkerTask& task, int control_fd, const TaskFunction& run);

// Dies with its parent: SIGKILL when `parent` ends, at once if it has ended already. The parent is
// the *thread* that forked.
void die_with_parent(pid_t parent);

}  // namespace lockstep
