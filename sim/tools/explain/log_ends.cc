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
constexpr std::array kSlurmEnds = {SlurmEnd{"Killed", 9},
                                   SlurmEnd{"Out Of Memory", 0},
                                   SlurmEnd{"Aborted", 6},
                                   SlurmEnd{"Segmentation fault", 11},
                                   SlurmEnd{"Bus error", 7},
                                   SlurmEnd{"Illegal instruction", 4},
                                   SlurmEnd{"Floating point exception", 8},
                                   SlurmEnd{"Terminated", 15}};

struct SignalName {
  std::string_view name;
  int64_t number;
};
constexpr std::array kSignals = {SignalName{"SIGKILL", 9}, SignalName{"SIGSEGV", 11},
                                 SignalName{"SIGBUS", 7},  SignalName{"SIGILL", 4},
                                 SignalName{"SIGFPE", 8},  SignalName{"SIGABRT", 6},
                                 SignalName{"SIGTERM", 15}};

// As the C library and Python's faulthandler call them.
constexpr std::array kSignalWords = {
    SignalName{"Segmentation fault", 11},      SignalName{"Bus error", 7},
    SignalName{"Illegal instruction", 4},      SignalName{"Floating point exception", 8},
    SignalName{"Floating-point exception", 8}, SignalName{"Aborted", 6}};

template <size_t kCount>
int64_t signal_in(std::string_view text, const std::array<SignalName, kCount>& names) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const SignalName& signal) {
    return text.find(signal.name) != std::string_view::npos;
  });
  return found == names.end() ? 0 : found->number;
}

// Who aborts says elsewhere why: what failed, or that a peer is gone.
void take_signal(int64_t signal, LogEvent* event) {
  constexpr int64_t kSigabrt = 6;
  event->signal = signal;
  event->foreign = signal == 0;
  if (signal != kSigabrt) return;
  event->kind = LogEventKind::exception;
  event->hint = true;
}

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
  event->signal = signal_in(line.substr(std::min(at, line.size())), kSignals);
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

// "x1921c0s1b0n0: rank 3 died from signal 11 and dumped core", "rank 5 exited with code 1": of all
// that ended, those that PALS then ended with SIGTERM and SIGKILL, too.
void read_pals_end(std::string_view line, LogEvent* event) {
  const size_t words = std::min(line.find(" died from signal "), line.find(" exited with code "));
  const std::string_view before = line.substr(0, words);
  const size_t word = before.rfind("rank ");
  const bool is_end = word != std::string_view::npos && before.substr(0, word).ends_with(": ");
  event->rank = is_end ? rank_at(before.substr(word + 5)).value_or(-1) : -1;
  event->foreign = event->rank < 0;
  event->code = number_after(line, " exited with code ", 0);
  event->signal = number_after(line, " died from signal ", signal_of_shell(event->code));
  constexpr int64_t kSigkill = 9;
  event->forced = event->signal == kSigkill;
}

// "One or more process (first noticed rank 3) terminated with signal 9"
void read_jsrun_end(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, "(first noticed rank ")).value_or(-1);
  event->signal = number_after(line, " terminated with signal ", 0);
  event->code = number_after(line, " terminated with exit code ", 0);
  event->first = true;
}

// "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3"
void read_mpich_abort(std::string_view line, LogEvent* event) {
  event->rank = rank_at(after(line, " - process ")).value_or(-1);
  event->code = 1;
  event->first = true;
}

// "(TorchTrainer pid=4711) Worker 3 has failed.", by its rank.
void read_ray_worker(std::string_view line, LogEvent* event) {
  const std::string_view before = line.substr(0, line.find(" has failed."));
  const size_t word = before.rfind("Worker ");
  event->rank = word == std::string_view::npos ? -1 : rank_at(before.substr(word + 7)).value_or(-1);
  event->foreign = event->rank < 0 || before.find("Trainer") == std::string_view::npos;
  event->code = 1;
}

void read_signal_words(std::string_view line, LogEvent* event) {
  take_signal(signal_in(line, kSignalWords), event);
}

// "*** SIGSEGV (@0x8) received by PID 4711" of glog, "*** SIGSEGV received at time=" of absl,
// "*** Signal 11 (SIGSEGV) " of folly, "SIGSEGV(11), PID: 4711" of PyTorch.
void read_signal_name(std::string_view line, LogEvent* event) {
  take_signal(signal_in(line, kSignals), event);
}

// "bash: line 1: 4711 Killed                  python train.py": of a script that starts the rank.
// Who ends the job kills it as well.
void read_killed_command(std::string_view line, LogEvent* event) {
  std::string_view before = line.substr(0, line.find(" Killed  "));
  const size_t space = before.rfind(' ');
  const std::string_view pid = before.substr(space == std::string_view::npos ? 0 : space + 1);
  event->foreign = pid.empty() || !std::all_of(pid.begin(), pid.end(), is_digit) ||
                   before.find("line ") == std::string_view::npos;
  event->signal = 9;
  event->forced = true;
}

// "Caught signal 11 (Segmentation fault: address not mapped".
void read_caught_signal(std::string_view line, LogEvent* event) {
  take_signal(signal_in(after(line, "Caught signal "), kSignalWords), event);
}
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
