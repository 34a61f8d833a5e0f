#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/plan/plan.h"
#include "sim/record/rank_groups.h"
#include "sim/record/recorder.h"

namespace lockstep {

// What a live process was doing when the launcher learnt that its run had failed.
struct ProcessState {
  char state = 0;         // R, S, D, T, t or Z of /proc/PID/stat; 0: not known
  std::string syscall;    // "futex", "call 435"; empty: in none, or not known
  std::string wchan;      // where the kernel sleeps; empty: not known
  std::string store_key;  // it waits for this key of the rendezvous store; empty: for none
  int64_t core_wait_ns =
      0;  // how long its main thread had been ready and without a core (sim/record/core_wait.h)
  // Asked of it before it was ended, innermost frame first; empty where it was stopped, or gave
  // none.
  std::vector<std::string> stack;
};

// How a process of a run ended, in the order in which the launcher learnt it: the first that ended
// by its own cause is the primary failure.
struct ProcessEnd {
  std::string who;      // "rank-0", "golden-replay"
  int64_t rank = -1;    // -1 for golden runs
  int64_t order = 0;    // 0, 1, 2, ... within the run
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
  int exit_code = -1;   // -1 if it was ended by a signal
  int signal = 0;
  bool by_launcher = false;    // the launcher ended it: after another failed, past a deadline, or
                               // on a signal; also set where the zygote took its workers along
  bool past_deadline = false;  // it was still running when a deadline passed
  // It is gone with the launcher that it belonged to: how it ended is not known, and what it
  // recorded is not here.
  bool lost = false;
  std::optional<ProcessState> state = {};  // of a rank that was alive when the run had failed
};

// Everything that one run left behind: the input of the judge. A plain value.
struct RunOutcome {
  RunPlan plan;
  // OUT_DIR/0001 for plan 0: stays if `done` says so. Of a run in threads it is made only then.
  std::string run_dir;
  std::vector<ProcessEnd> ends;      // in order
  std::vector<RankRecords> ranks;    // index = rank; empty events where the file was unreadable
  std::vector<RankRecords> goldens;  // records of golden processes (lane rounding writes some)
  // Of a program of the user's alone. By rank: groups of some of the ranks, in the order in which
  // its events number them.
  std::vector<std::vector<RankGroup>> groups;
  bool own_bytes = false;  // and bytes of a collective are what the rank gave to it

  std::vector<std::string> evidence;   // JSON documents that workers wrote, by rank
  std::vector<std::string> log_tails;  // by rank: last 20 lines, empty where it passed
  std::string golden_problem;          // a golden process failed: its name, end and last log line
  std::string libtorch;                // "2.6.0", "2.15.0+gloo" (libtorch_of()); empty: not known
  int64_t duration_ms = 0;
  int64_t began_ns = 0;   // CLOCK_MONOTONIC
  int64_t failed_ns = 0;  // when the launcher first knew that it had failed; 0: it has not
  // How long launcher and zygote were ready and had no core, until then or until the run's end.
  int64_t core_wait_ns = 0;
  bool interrupted = false;
};

struct ExecutorOptions {
  std::string out_dir;         // run directory of the invocation, absolute, exists, 0700
  std::string worker_program;  // absolute path of lockstep-worker
  int64_t jobs = 0;            // runs side by side; 0: as cores and memory allow
  bool fresh_processes = false;
  bool keep_all = false;  // keep run directories of passing runs too
  // Asked after each outcome: true ends the running runs, which are not delivered, and begins no
  // other. May be empty: never enough.
  std::function<bool()> enough = {};
};

// Executes runs and hands each outcome to `done` as it ends (not in the order of the plans).
// Single-threaded: an event loop over pidfds, signalfd and sockets; one zygote for the whole call,
// but processes of their own for scenarios with threads > 1 (a zygote must have one thread). What
// `done` returns: whether the run's directory is to stay. SIGINT and SIGTERM end the running runs
// (delivered with `interrupted`; those not begun are not delivered), a second one at once. Returns
// 0, or the signal that interrupted it. Throws std::system_error or std::runtime_error where the
// environment fails (no worker program, a full disk, a zygote that cannot load), with the sentence
// to print. No process of it is alive afterwards, whichever way it ends.
int execute(const std::vector<RunPlan>& plans, const ExecutorOptions& options,
            const std::function<bool(size_t index, RunOutcome outcome)>& done);

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
