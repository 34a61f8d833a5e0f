#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/launch/protocol.h"
#include "sim/worker/worker_process.h"

namespace lockstep {

// Before the first fork of a process whose children run tasks; leaves it with one thread.
void prepare_forks();

// Does what the task says, in this process, and returns its exit code (kExitDone, kExitCommError,
// kExitException). Called once, in a process with one thread, after it has its name, its log as
// stdout and stderr, default signals (SIGPIPE ignored) and its own process group; the process ends
// with _exit right after, so whatever must be written is written before it returns. An exception
// that leaves it goes to the log and ends the process with kExitException. Roles:
//   rank         trains as rank task.rank of task.run_dir's plan
//   golden       streams golden run task.golden of that plan
//   rounding     consumes rank 0's stream for lane rounding
//   collective   measures collectives as rank task.rank (sim/tools/collective/worker/collective.h)
//   thread_host  runs plans of control.next_run(), one after the other, until there are no more,
//                with records in task.run_dir/rank-R.records
int run_task(const WorkerTask& task, Control& control);

// Layer times of the model of the plan in this file (sim/worker/profile.h), as the text of a
// profile. Throws std::exception.
std::string worker_profile(const std::string& plan_file, int64_t repetitions);

// Schedules of one plan (sim/tools/explore/worker/explore.h); returns the exit code.
int worker_explore(const std::string& file);

// What this worker is linked with, as one line of JSON (sim/worker/libraries.h).
std::string worker_libraries();
// The devices that it can use, likewise.
std::string worker_devices();
// Which of the names that scenarios ask for nothing is registered under: `asked` holds pairs of
// "model", "data", "reducer" or "comm_hook" and a name. A JSON array of a sentence for each pair,
// empty where there is something.
std::string worker_unknown_names(const std::vector<std::string>& asked);

}  // namespace lockstep
