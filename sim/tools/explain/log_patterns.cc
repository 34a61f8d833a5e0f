#include "sim/tools/explain/log_patterns.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/tools/explain/log_ends.h"
#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/log_record.h"

namespace lockstep {
namespace {

// "[PG ID 0 PG GUID 0(default_pg) Rank 1]" since 2.5, "[PG 0 (default_pg) Rank 1]" in 2.4,
// "[PG 1 Rank 0]" in 2.3. The rank is that within the group.
void read_group(std::string_view line, LogEvent* event) {
  std::string_view rest = after(line, "PG GUID ");
  if (rest.data() == nullptr) rest = after(line, "[PG ");
  if (rest.data() == nullptr || rest.starts_with("ID ")) return;
  const size_t end = std::min(rest.find_first_of(" (]"), rest.size());
  if (end == 0 || end > 200) return;
  event->group = rest.substr(0, end);
  const size_t rank = rest.find("Rank ");
  const size_t open = rest.find('(');
  if (open < rank && rank != std::string_view::npos)
    event->description = cut(rest.substr(open + 1, rest.find(')') - open - 1));
}

void read_work(std::string_view line, LogEvent* event) {
  const std::string_view work = after(line, "WorkNCCL(");
  event->sequence = number_after(work, "SeqNum=");
  const std::string_view operation = after(work, "OpType=");
  event->operation = cut(operation.substr(0, std::min(operation.find_first_of(",)"), size_t{40})));
  const std::string_view sizes = after(work, "NumelIn=");
  event->sizes = cut(sizes.substr(0, std::min(sizes.find_first_of(",)"), size_t{24})));
  event->timeout_ms = number_after(work, "Timeout(ms)=", 0);
  event->ran_ms = number_after(work, "ran for ", 0);
  read_group(line, event);
}

void read_progress(std::string_view line, LogEvent* event) {
  read_group(line, event);
  for (const char* key : {"ast enqueued NCCL work: ", "ast enqueued work: "})
    event->enqueued = std::max(event->enqueued, number_after(line, key));
  event->completed =
      number_after(line, "ast completed NCCL work: ", number_after(line, "ast completed work: "));
  for (const char* key :
       {"imeout at NCCL work: ", "by watchdog at work: ", "at work sequence id: "})
    event->sequence = std::max(event->sequence, number_after(line, key));
  if (event->sequence >= 0) event->kind = LogEventKind::timed_out;
}

void read_gloo_timeout(std::string_view line, LogEvent* event) {
  event->timeout_ms = number_after(line, "Timed out waiting ", 0);
}

void read_absent(std::string_view line, LogEvent* event) {
  // "[Rank 0]: Ranks 4, 5 failed to pass": the last "Rank" before the words.
  const std::string_view before = line.substr(0, line.find(" failed to pass monitoredBarrier"));
  const size_t at = before.rfind("Rank");
  if (at == std::string_view::npos) return;
  std::string_view list = before.substr(at + 4);
  if (list.starts_with("s")) list.remove_prefix(1);
  event->ranks = ranks_in(list);
}

// "ranks [3] are the lagging ranks", "[7] finished collective #182, but didn't join": the last list
// before the words.
void read_lagging(std::string_view line, LogEvent* event) {
  size_t words = line.size();
  for (const char* key : {" are the lagging ranks", " finished collective #", " joined but didn't"})
    words = std::min(words, line.find(key));
  const size_t open = line.substr(0, words).rfind('[');
  if (open != std::string_view::npos) event->ranks = ranks_in(line.substr(open + 1));
}

// "Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, ...),
// but Rank 0 is running collective: ...".
void read_fingerprints(std::string_view line, LogEvent* event) {
  constexpr std::string_view kRunning = " is running collective: ";
  for (size_t at = line.find(kRunning); at != std::string_view::npos;
       at = line.find(kRunning, at + 1)) {
    const size_t word = line.substr(0, at).rfind("Rank ");
    if (word == std::string_view::npos) continue;
    const auto rank = rank_at(line.substr(word + 5));
    std::string_view called = line.substr(at + kRunning.size());
    called =
        called.substr(0, std::min(called.find(", but Rank "), called.find("Collectives differ")));
    while (called.ends_with('.') || called.ends_with(' ')) called.remove_suffix(1);
    if (rank) event->called.emplace(*rank, cut(called));
  }
}

// The coordinator lists, tensor by tensor, the ranks that did not ask for it.
void read_stalled(std::string_view line, LogEvent* event) {
  constexpr std::string_view kKey = "[missing ranks: ";
  for (size_t at = line.find(kKey); at != std::string_view::npos; at = line.find(kKey, at + 1))
    event->ranks.merge(ranks_in(line.substr(at + kKey.size())));
  event->of_others = true;
}

// PyTorch's analyzer of dumps, of the group's ranks that a collective lacks.
void read_analyzed(std::string_view line, LogEvent* event) {
  event->ranks = ranks_in(after(line, "missing ranks: {"));
  event->of_others = true;
}

// Both ends of a link see its error. Who ends, for whatever reason, has no driver any more.
void read_device_error(std::string_view line, LogEvent* event) {
  constexpr std::array<std::string_view, 2> kOfTheEnd = {"driver shutting down",
                                                         "context is destroyed"};
  event->foreign = holds_any(line, kOfTheEnd);
  event->own = event->certain =
      line.find("NVLink") == std::string_view::npos && line.find("XGMI") == std::string_view::npos;
}
// "Call to recv from 10.0.0.3<43210> failed : Connection reset by peer". Those of ibverbs and the
// like are probes of what a host has, and of memory, its own.
void read_failed_call(std::string_view line, LogEvent* event) {
  constexpr std::array<std::string_view, 4> kOfMemory = {"posix_fallocate", "fallocate",
                                                         "ftruncate", "shm_open"};
  constexpr std::array<std::string_view, 6> kOfPeers = {"recv",   "send", "connect",
                                                        "accept", "poll", "getsockopt"};
  const std::string_view call = after(line, "Call to ");
  const auto begins = [&](std::string_view name) { return call.starts_with(name); };
  if (std::any_of(kOfMemory.begin(), kOfMemory.end(), begins))
    event->kind = LogEventKind::exception;
  else
    event->foreign = std::none_of(kOfPeers.begin(), kOfPeers.end(), begins);
}
void read_own_reason(std::string_view, LogEvent* event) { event->explains = true; }
void read_order(std::string_view, LogEvent* event) { event->ordered = true; }
void read_summary(std::string_view, LogEvent* event) { event->in_the_end = true; }
void read_hint(std::string_view, LogEvent* event) { event->hint = true; }
void read_own_abort(std::string_view, LogEvent* event) { event->own = event->certain = true; }
void read_sent_more(std::string_view, LogEvent* event) { event->sent_more = true; }
void read_nothing(std::string_view, LogEvent*) {}

void read_members(std::string_view line, LogEvent* event) {
  const std::string_view member = after(line, "MEMBER: ");
  event->world = number_after(member, "/", 0);
}
void read_processes(std::string_view line, LogEvent* event) {
  event->world = number_after(line, "Starting with ", 0);
}

// vLLM's, behind what counts the workers of one engine: "rank 5 in world size 8 is assigned as".
void read_assigned(std::string_view line, LogEvent* event) {
  event->world = number_after(line, " in world size ", 0);
}

// Whoever logs it at another level goes on.
void read_check(std::string_view line, LogEvent* event) {
  event->foreign = true;
  for (size_t at = line.find('F'); at != std::string_view::npos; at = line.find('F', at + 1))
    if (native_level(line.substr(at)) == 'F') event->foreign = false;
}

struct LogRow {
  LogPattern pattern;
  void (*read)(std::string_view line, LogEvent* event);
};

using enum LogEventKind;

// The first that a line holds counts.
constexpr std::array kLogRows = {
    LogRow{{"Watchdog caught collective operation timeout", timed_out, "ProcessGroupNCCL.cpp",
            "PyTorch 1.8"},
           read_work},
    LogRow{{"last enqueued NCCL work: ", progress, "ProcessGroupNCCL.cpp", "PyTorch 2.2"},
           read_progress},
    LogRow{{"last enqueued work: ", progress, "ProcessGroupNCCL.cpp", "PyTorch 2.6"},
           read_progress},
    LogRow{{"Last enqueued NCCL work: ", progress, "ProcessGroupNCCL.cpp", "PyTorch 2.3"},
           read_progress},
    LogRow{{"terminated with exception: CUDA error", LogEventKind::exception,
            "ProcessGroupNCCL.cpp", "PyTorch 2.0"},
           read_device_error},
    LogRow{{"terminated with exception: HIP error", LogEventKind::exception, "ProcessGroupNCCL.cpp",
            "PyTorch 2.0, ROCm"},
           read_device_error},
    LogRow{{"Memory access fault by GPU node-", LogEventKind::exception, "ROCr runtime", "ROCm 5"},
           read_own_abort},
    LogRow{{"terminate called after throwing an instance of 'std::bad_alloc'",
            LogEventKind::exception, "libstdc++", "GCC 4"},
           read_own_abort},
    LogRow{{"timed out in blocking wait", timed_out, "ProcessGroupNCCL.cpp", "PyTorch 2.0"},
           read_work},
    LogRow{{"'s watchdog got stuck for ", stuck, "ProcessGroupNCCL.cpp", "PyTorch 2.2"},
           read_nothing},
    LogRow{{"Mismatched collective detected", mismatch, "NCCL init.cc", "NCCL 2.4"}, read_nothing},
    LogRow{{"essage truncated : receiv", mismatch, "NCCL transport/net_socket.cc", "NCCL 2.2"},
           read_nothing},
    LogRow{{"nable to find address for", LogEventKind::exception, "gloo/transport/tcp/device.cc",
            "Gloo"},
           read_nothing},
    LogRow{{"raised the following async exception: NCCL error", lost_peer, "ProcessGroupNCCL.cpp",
            "PyTorch 2.1"},
           read_nothing},
    LogRow{{"Some NCCL operations have failed or timed out", lost_peer, "ProcessGroupNCCL.cpp",
            "PyTorch 1.10"},
           read_nothing},
    LogRow{
        {" are the lagging ranks that caused this timeout", absent, "TraceUtils.h", "PyTorch 1.12"},
        read_lagging},
    LogRow{{", but didn't join collective #", absent, "TraceUtils.h", "PyTorch 1.12"},
           read_lagging},
    LogRow{{" joined but didn't finish collective #", absent, "TraceUtils.h", "PyTorch 1.12"},
           read_lagging},
    LogRow{{"NCCL communicator was aborted on rank ", lost_peer, "ProcessGroupNCCL.cpp",
            "PyTorch 1.8"},
           read_nothing},
    LogRow{{"ncclRemoteError", lost_peer, "NCCLUtils.hpp", "PyTorch 1.13"}, read_nothing},
    LogRow{{"Connection closed by remote peer", lost_peer, "NCCL misc/socket.cc", "NCCL 2.12"},
           read_nothing},
    LogRow{{"NCCL WARN Call to ", lost_peer, "NCCL misc/socket.cc", "NCCL 2.0"}, read_failed_call},
    LogRow{{"Error while creating shared memory segment", LogEventKind::exception,
            "NCCL misc/shmutils.cc", "NCCL 2.8"},
           read_own_reason},
    LogRow{{"Got completion from peer ", lost_peer, "NCCL transport/net_ib.cc", "NCCL 2.4"},
           read_nothing},
    LogRow{{"op.preamble.length <= op.nbytes", mismatch, "gloo/transport/tcp/pair.cc", "Gloo"},
           read_sent_more},
    LogRow{{"Timed out waiting ", timed_out, "gloo/transport/tcp/unbound_buffer.cc", "Gloo"},
           read_gloo_timeout},
    LogRow{{"Application timeout caused pair closure", timed_out, "gloo/transport/tcp/pair.cc",
            "Gloo"},
           read_nothing},
    LogRow{{"failed to pass monitoredBarrier in ", absent, "ProcessGroupGloo.cpp", "PyTorch 1.9"},
           read_absent},
    LogRow{
        {"timed out in monitoredBarrier after ", timed_out, "ProcessGroupGloo.cpp", "PyTorch 1.9"},
        read_nothing},
    LogRow{{"successfully reached monitoredBarrier, but received errors", lost_peer,
            "ProcessGroupGloo.cpp", "PyTorch 1.9"},
           read_nothing},
    LogRow{{"Connection closed by peer [", lost_peer, "gloo/transport/tcp/pair.cc", "Gloo"},
           read_nothing},
    LogRow{{"Read error [", lost_peer, "gloo/transport/tcp/pair.cc", "Gloo"}, read_nothing},
    LogRow{{"gloo/transport/tcp/", lost_peer, "gloo/transport/tcp/*.cc", "Gloo"}, read_nothing},
    LogRow{{"[c10d] recvValue failed", lost_peer, "TCPStore.cpp", "PyTorch 2.5"}, read_nothing},
    LogRow{{"[c10d] sendBytes failed", lost_peer, "TCPStore.cpp", "PyTorch 2.5"}, read_nothing},
    LogRow{{"Failed to check the \"should dump\" flag on TCPStore", lost_peer,
            "ProcessGroupNCCL.cpp", "PyTorch 2.2"},
           read_nothing},
    LogRow{{"timeout watchdog detected operation timeout", timed_out, "nccl2, torchcomms",
            "PyTorch 2.13"},
           read_nothing},
    LogRow{{"timeout - collective operation timed out", timed_out, "nccl2", "PyTorch 2.13"},
           read_nothing},
    LogRow{{"timeout watchdog detected operation error", lost_peer, "nccl2, torchcomms",
            "PyTorch 2.13"},
           read_nothing},
    LogRow{{"nccl hit async error", lost_peer, "nccl2, torchcomms", "PyTorch 2.13"}, read_nothing},
    LogRow{{"The wait execution of the Notify register times out", timed_out, "HCCL", "CANN 7"},
           read_nothing},
    LogRow{{"Getting socket times out", timed_out, "HCCL", "CANN 7"}, read_nothing},
    LogRow{{"Heartbeat monitor timed out!", stuck, "ProcessGroupNCCL.cpp", "PyTorch 2.2"},
           read_nothing},
    LogRow{{"Stop_waiting response is expected", lost_peer, "TCPStore.cpp", "PyTorch 1.8"},
           read_nothing},
    LogRow{{"Detected mismatch between collectives on ranks", mismatch, "ProcessGroupWrapper.cpp",
            "PyTorch 1.10"},
           read_fingerprints},
    LogRow{{"failed (exitcode: ", ended, "elastic/multiprocessing/api.py", "PyTorch 1.9",
            LogWriter::agent},
           read_agent_end},
    LogRow{{" death signal, shutting down workers", job_ended, "elastic/agent/server/api.py",
            "PyTorch 1.9", LogWriter::agent},
           read_order},
    LogRow{{"exits with return code = ", ended, "deepspeed/launcher/launch.py", "DeepSpeed 0.3",
            LogWriter::agent},
           read_return_code},
    LogRow{{"Forcefully terminating all other processes", ended, "subprocess_script.py",
            "Lightning 2.0", LogWriter::agent},
           read_child},
    LogRow{{"composer.cli.launcher:Rank ", ended, "composer/cli/launcher.py", "Composer 0.14",
            LogWriter::agent},
           read_composer_first},
    LogRow{{"composer.cli.launcher:Global rank ", ended, "composer/cli/launcher.py",
            "Composer 0.14", LogWriter::agent},
           read_composer_end},
    LogRow{{"missing ranks: {", absent, "torchfrtrace", "PyTorch 2.5"}, read_analyzed},
    LogRow{{"[missing ranks: ", absent, "horovod/common/stall_inspector.cc", "Horovod 0.16"},
           read_stalled},
    LogRow{{"Worker proc VllmWorker-", ended, "vllm/v1/executor/multiproc_executor.py", "vLLM 0.9"},
           read_vllm_worker},
    LogRow{{"Horovod detected that one or more processes exited", ended, "horovodrun",
            "Horovod 0.19", LogWriter::agent},
           read_first_told},
    LogRow{{" exit with status code ", ended, "horovodrun", "Horovod 0.19", LogWriter::agent},
           read_horovod_end},
    LogRow{{"noticed that process rank ", ended, "mpirun, prterun", "Open MPI 1.8"},
           read_mpirun_signal},
    LogRow{{"Process name: [", ended, "mpirun, prterun", "Open MPI 1.8"}, read_mpirun_exit},
    LogRow{{"MPI_ABORT was invoked on rank ", ended, "mpirun", "Open MPI 1.8"}, read_mpi_abort},
    LogRow{{"application called MPI_Abort(", ended, "MPICH", "MPICH 3.0"}, read_mpich_abort},
    LogRow{{" died from signal ", ended, "PALS's mpiexec", "PALS 1.0"}, read_pals_end},
    LogRow{{"=   RANK ", ended, "mpiexec.hydra", "Intel MPI 2019"}, read_hydra_end},
    LogRow{{"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", job_ended, "mpiexec.hydra",
            "MPICH 3.0"},
           read_nothing},
    LogRow{{"(first noticed rank ", ended, "jsrun", "IBM JSM 10"}, read_jsrun_end},
    LogRow{{" terminated with signal ", ended, "multiprocessing/spawn.py", "PyTorch 1.5"},
           read_spawned},
    LogRow{{" terminated with exit code ", ended, "multiprocessing/spawn.py", "PyTorch 1.5"},
           read_spawned},
    LogRow{{"srun: error: Node failure on ", job_ended, "srun", "Slurm 14"}, read_nothing},
    LogRow{{"srun: error: ", ended, "srun", "Slurm 14", LogWriter::slurm}, read_slurm},
    LogRow{{"oom-kill event", ended, "slurmstepd", "Slurm 17", LogWriter::kernel},
           read_out_of_memory},
    LogRow{{"oom_kill event", ended, "slurmstepd", "Slurm 21", LogWriter::kernel},
           read_out_of_memory},
    LogRow{{"slurmstepd: error: *** ", job_ended, "slurmstepd", "Slurm 14"}, read_order},
    LogRow{{"error: *** STEP ", job_ended, "slurmstepd", "Slurm 14"}, read_order},
    LogRow{{"error: *** JOB ", job_ended, "slurmstepd", "Slurm 14"}, read_order},
    LogRow{{"PBS: job killed: ", job_ended, "pbs_mom", "OpenPBS, Torque"}, read_order},
    LogRow{{"TERM_RUNLIMIT: job killed", job_ended, "LSF", "LSF 7"}, read_summary},
    LogRow{{"TERM_MEMLIMIT: job killed", job_ended, "LSF", "LSF 7"}, read_summary},
    LogRow{{"TERM_OWNER: job killed", job_ended, "LSF", "LSF 7"}, read_summary},
    LogRow{
        {"died or was killed while executing a task", ended, "raylet", "Ray 1", LogWriter::kernel},
        read_nothing},
    LogRow{{"NVRM: Xid (", node_fault, "NVIDIA's kernel module", "340", LogWriter::kernel},
           read_nothing},
    LogRow{{"NVRM: fallen off the bus", node_fault, "NVIDIA's kernel module", "570",
            LogWriter::kernel},
           read_nothing},
    LogRow{{"amdgpu: GPU reset begin", node_fault, "AMD's kernel module", "Linux 5.10",
            LogWriter::kernel},
           read_nothing},
    LogRow{{"Killed process ", node_fault, "Linux mm/oom_kill.c", "Linux 2.6", LogWriter::kernel},
           read_killed},
    LogRow{{"Fatal Python error: ", ended, "faulthandler", "Python 3.3"}, read_signal_words},
    LogRow{{"(core dumped)", ended, "a shell", "bash 4"}, read_signal_words},
    LogRow{{"] Signal: ", ended, "Open MPI", "Open MPI 1.8"}, read_signal_words},
    LogRow{{"Caught signal ", ended, "UCX", "UCX 1.4"}, read_caught_signal},
    LogRow{{"*** SIG", ended, "glog, absl", "glog 0.3"}, read_signal_name},
    LogRow{{"*** Signal ", ended, "folly", "2017"}, read_signal_name},
    LogRow{{"), PID: ", ended, "c10/util/signal_handler.cpp", "PyTorch 1.9"}, read_signal_name},
    LogRow{{"OOMKilled", ended, "Kubernetes", "Kubernetes 1.0", LogWriter::kernel},
           read_killed_container},
    LogRow{{"Initializing distributed: GLOBAL_RANK: ", world, "Lightning", "Lightning 1.4"},
           read_members},
    LogRow{{"All distributed processes registered. Starting with ", world, "Lightning",
            "Lightning 1.4"},
           read_processes},
    LogRow{{" is assigned as DP rank ", world, "vllm/distributed/parallel_state.py", "vLLM 0.8"},
           read_assigned},
    LogRow{{"] Check failed: ", LogEventKind::exception, "glog, absl", "glog 0.3"}, read_check},
    LogRow{{"terminate called ", LogEventKind::exception, "libstdc++", "GCC 4"}, read_hint},
    LogRow{{"Segfault encountered", LogEventKind::exception, "a handler of signals", "PyTorch 1"},
           read_hint},
    LogRow{{"HW Exception by GPU node-", LogEventKind::exception, "ROCr runtime", "ROCm 5"},
           read_hint},
    LogRow{{" Killed  ", ended, "a shell", "bash 4"}, read_killed_command},
    LogRow{{" exited with code ", ended, "PALS's mpiexec", "PALS 1.0"}, read_pals_end},
    LogRow{{" has failed.", ended, "Ray Train", "Ray 1.9"}, read_ray_worker},
};

}  // namespace

const char* name_of(LogEventKind kind) {
  switch (kind) {
    case timed_out:
      return "timed_out";
    case progress:
      return "progress";
    case lost_peer:
      return "lost_peer";
    case absent:
      return "absent";
    case mismatch:
      return "mismatch";
    case LogEventKind::exception:
      return "exception";
    case ended:
      return "ended";
    case stopped:
      return "stopped";
    case job_ended:
      return "job_ended";
    case stuck:
      return "stuck";
    case node_fault:
      return "node_fault";
    case world:
      return "world";
  }
  return "world";
}

std::vector<LogPattern> log_patterns() {
  std::vector<LogPattern> all;
  for (const LogRow& row : kLogRows) all.push_back(row.pattern);
  return all;
}

std::optional<RecognizedLine> recognize(std::string_view line) {
  const auto found = std::find_if(kLogRows.begin(), kLogRows.end(), [&](const LogRow& row) {
    return line.find(row.pattern.needle) != std::string_view::npos;
  });
  if (found == kLogRows.end()) return std::nullopt;
  RecognizedLine recognized{found->pattern, {}};
  recognized.event.kind = found->pattern.kind;
  found->read(line, &recognized.event);
  return recognized;
}

}  // namespace lockstep
