#pragma once

namespace lockstep {

// The main of a program of one's own: all verbs of `lockstep`, with the models, data sets, reducers
// and comm hooks that the program registers (scenarios/workloads/registry.h, reducer/registry.h,
// reducer/comm_hook.h). The program is its own worker: it starts itself again for ranks and golden
// runs, so nothing else may be done with argv before, and no thread started. Returns the exit code.
//
//   #include "sim/main/lockstep_main.h"
//   int main(int argc, char** argv) { return lockstep::main(argc, argv); }
int main(int argc, char** argv);

// Where this process was started as a worker: is one, and does not return.
void serve_if_worker(int argc, char** argv);

}  // namespace lockstep
