#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Messages between launcher, zygote and workers: each one datagram of a SOCK_SEQPACKET pair.

// What a forked or exec'd worker process is to be.
struct WorkerTask {
  std::string role;     // rank | golden | rounding | thread_host | collective
  std::string golden;   // for role golden: replay | float64 | exact | one_device; else rounding
  int64_t rank = 0;     // for roles rank and collective; index of the host for thread_host
  std::string run_dir;  // absolute; holds plan.json
  // Ranks of this host, where others run elsewhere; empty: all are here.
  std::vector<int64_t> host_ranks = {};
  std::string address = {};  // at which a rank is to be reached; empty: 127.0.0.1
};
std::string encode(const WorkerTask& task);
std::optional<WorkerTask> decode_task(const std::string& message);
std::string process_label(const WorkerTask& task);  // rank-0 | golden-replay | host-0
std::string process_name(const WorkerTask& task);   // as ps and top show it, at most 15 letters

// Names of files in a run directory.
std::string records_path(const std::string& run_dir, int64_t rank);  // rank-0.records
std::string golden_records_path(const std::string& run_dir, const std::string& golden);
std::string log_path(const std::string& run_dir, const std::string& who);  // rank-0.log
std::string stream_path(const std::string& run_dir,
                        const std::string& golden);                          // golden-replay.stream
std::string evidence_path(const std::string& run_dir, int64_t rank);         // rank-0.evidence.json
std::string plan_path(const std::string& run_dir);                           // plan.json
std::string stack_path(const std::string& run_dir, const std::string& who);  // rank-0.stack

// Asks a worker for the stack of its main thread, which it writes to its stack_path().
int stack_signal();
inline constexpr const char* kStackEnd = "end of the stack";

// Exit codes of a worker process.
inline constexpr int kExitDone = 0;
inline constexpr int kExitCommError = 10;  // a CommError ended it: evidence and records say which
inline constexpr int kExitException = 11;  // any other exception
inline constexpr int kExitOrphan = 12;     // its launcher is gone

// A rank that has lost a peer keeps its own connections this long, so that those who lost the same
// peer see that peer's end, and not this rank's. On a busy machine some wake only tens of ms later.
inline constexpr std::chrono::milliseconds kKeptAfterALoss{50};

}  // namespace lockstep
