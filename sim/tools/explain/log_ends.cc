#include "sim/tools/explain/log_ends.h"

#include <algorithm>
#include <array>

#include "sim/tools/explain/log_fields.h"

namespace lockstep {
namespace {

// A shell, or whoever hands on a shell's exit code, counts signals from 128. What SIGKILL ended may
// be the launcher's doing.
int64_t signal_of_shell(int64_t code) {
  constexpr std::array kOwn = {int64_t{4}, int64_t{7}, int64_t{8}, int64_t{11}};
  const bool own = std::find(kOwn.begin(), kOwn.end(), code - 128) != kOwn.end();
  return own ? code - 128 : 0;
}

// "Out Of Memory" is said of all tasks of a step in which one was killed.
struct SlurmEnd {
  std::string_view words;
  int64_t signal;
};
constexpr std::array kSlurmEnds = {SlurmEnd{"Killed", 9},    SlurmEnd{"Out Of Memory", 0},
                                   SlurmEnd{"Aborted", 6},   SlurmEnd{"Segmentation fault", 11},
                                   SlurmEnd{"Bus error", 7}, SlurmEnd{"Terminated", 15}};

struct SignalName {
  std::string_view name;
  int64_t number;
};
constexpr std::array kSignals = {SignalName{"SIGKILL", 9}, SignalName{"SIGSEGV", 11},
                                 SignalName{"SIGBUS", 7},  SignalName{"SIGILL", 4},
                                 SignalName{"SIGFPE", 8},  SignalName{"SIGABRT", 6},
                                 SignalName{"SIGTERM", 15}};

}  // namespace

void read_slurm(std::string_view line, LogEvent* event) {
  std::string_view tasks = after(line, ": tasks ");
  if (tasks.data() == nullptr) tasks = after(line, ": task ");
  if (tasks.data() == nullptr) return;
  event->ranks = ranks_in(tasks);
  event->code = number_after(line, "Exited with exit code ", 0);
  event->signal = signal_of_shell(event->code);
  for (const SlurmEnd& end : kSlurmEnds) {
    if (tasks.find(end.words) == std::string_view::npos) continue;
    event->signal = end.signal;
    if (end.signal == 0) event->code = 1;
  }
}

void read_mpirun_signal(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "noticed that process rank ")).value_or(-1);
  event->signal = number_after(line, "exited on signal ", 0);
  event->first = true;
}

// "[[13241,1],3]", "[prterun-node-4711@1,3]": the job's processes count from 0.
void read_mpirun_exit(std::string_view line, LogEvent* event) {
  std::string_view name = after(line, "Process name: [");
  name = name.substr(0, name.find_first_of(" \t\r"));
  const std::string_view rank = after(name, name.starts_with("[") ? ",1]," : "@1,");
  event->rank = rank_at(rank).value_or(-1);
  event->first = true;  // the next line has its code
}

// Whom it saw, and its code, stand in the next lines.
void read_first_told(std::string_view, LogEvent* event) { event->first = true; }

void read_mpi_abort(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "MPI_ABORT was invoked on rank ")).value_or(-1);
  event->code = number_after(line, "errorcode ", 1);
  event->first = true;
}

// One block for each process that ended, those that the launcher then killed included: the signal
// on the next line does not tell who was first.
void read_hydra_end(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "=   RANK ")).value_or(-1);
}

void read_spawned(std::string_view line, LogEvent* event) {
  const size_t at = line.find(" terminated with ");
  const std::string_view before = line.substr(0, at);
  if (const size_t word = before.rfind("rocess "); word != std::string_view::npos)
    event->rank = rank_at(before.substr(word + 7)).value_or(-1);
  event->local = true;
  event->first = true;
  event->code = number_after(line, "with exit code ", 0);
  for (const SignalName& signal : kSignals)
    if (line.find(signal.name, at) != std::string_view::npos) event->signal = signal.number;
}

void read_agent_end(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "local_rank: ")).value_or(-1);
  event->local = true;
  event->code = number_after(line, "exitcode: ", 0);
  event->first = true;
}

// The command that it tells is that of the node's last process, not of the one that ended.
void read_return_code(std::string_view line, LogEvent* event) {
  event->code = number_after(line, "exits with return code = ", 0);
  event->first = true;
}

void read_child(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "[rank: ")).value_or(-1);
  event->local = true;
  event->code = number_after(line, "terminated with code ", 0);
  event->first = true;
}

// horovodrun's, of those that it ended after the first, too.
void read_horovod_end(std::string_view line, LogEvent* event) {
  const std::string_view before = line.substr(0, line.find(" exit with status code "));
  if (const size_t word = before.rfind("Process "); word != std::string_view::npos)
    event->rank = rank_at(before.substr(word + 8)).value_or(-1);
  event->code = number_after(line, " exit with status code ", 0);
  event->signal = signal_of_shell(event->code);
}

void read_composer_first(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "composer.cli.launcher:Rank ")).value_or(-1);
  event->code = number_after(line, " crashed with exit code ", 0);
  event->first = true;
}

// Of all that did not end well: those that the launcher killed, too.
void read_composer_end(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "lobal rank ")).value_or(-1);
  event->code = number_after(line, " exited with code ", 0);
  event->forced = event->code == -9;
}

// By its number on its host.
void read_vllm_worker(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "Worker proc VllmWorker-")).value_or(-1);
  event->local = true;
}

void read_segmentation(std::string_view, LogEvent* event) { event->signal = 11; }
void read_bus_error(std::string_view, LogEvent* event) { event->signal = 7; }
void read_out_of_memory(std::string_view, LogEvent* event) { event->signal = 9; }

// "Reason:       OOMKilled", "reason": "OOMKilled", and "worker-3  0/1  OOMKilled  0  10m".
// Programs write the word, too, as what they would restart for.
void read_killed_container(std::string_view line, LogEvent* event) {
  std::string_view before = line.substr(0, line.find("OOMKilled"));
  const bool quoted = before.ends_with('"');
  if (quoted) before.remove_suffix(1);
  while (before.ends_with(' ')) before.remove_suffix(1);
  const std::string_view count = before.substr(before.rfind(' ') + 1);
  const bool in_table = count.size() >= 3 && is_digit(count.front()) && is_digit(count.back()) &&
                        count.find('/') != std::string_view::npos;
  const bool is_reason = before.ends_with("eason:") || before.ends_with("eason\":");
  event->foreign = !is_reason && !in_table;
  read_out_of_memory(line, event);
}
// "Killed process 4711 (python3)": the kernel ends other people's, too.
void read_killed(std::string_view line, LogEvent* event) {
  constexpr std::array<std::string_view, 6> kNames = {
      "(python", "(pt_", "(ray::", "(torchrun", "(accelerate", "(deepspeed"};
  const std::string_view process = after(line, "Killed process ");
  event->foreign = std::none_of(kNames.begin(), kNames.end(), [&](std::string_view name) {
    const size_t at = process.find(name);
    return at != std::string_view::npos && at < 24;
  });
}

}  // namespace lockstep
