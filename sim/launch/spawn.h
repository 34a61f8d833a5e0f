#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/file.h"

namespace lockstep {

// A process that the launcher has exec'd: it dies with the launcher's thread, has its own process
// group, /dev/null as stdin, its log as stdout and stderr, default signals, `passed` as descriptor
// 3 and no other one.
struct Spawned {
  pid_t pid = 0;
  UniqueFd pidfd;
};
struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the absolute path of the program
  int64_t blas_threads = 1;       // OPENBLAS_, OMP_ and MKL_NUM_THREADS
  std::string log;                // appended to
  int passed = -1;
};
inline constexpr int kPassedFd = 3;
// Returns once the program runs. Throws std::system_error if it cannot be started.
Spawned spawn(const SpawnOptions& options);

// Sends a signal through a pidfd; a process that has ended already is no error.
void send_signal(const UniqueFd& pidfd, int signal);

// The wait status of a child that has ended, -1 if it still runs.
int try_reap(const Spawned& child);
// SIGKILL, then waits for its end.
void kill_and_reap(const Spawned& child);

}  // namespace lockstep
