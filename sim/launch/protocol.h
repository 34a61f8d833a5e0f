#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/file.h"

namespace lockstep {

// One end of a SOCK_SEQPACKET pair that carries messages: lists of byte strings, of any length (a
// long one goes in several datagrams), with at most one file descriptor. One reader and one writer
// at a time on each end.
class Channel {
 public:
  using Message = std::vector<std::string>;
  enum class Got { message, nothing, closed };

  Channel() = default;
  explicit Channel(UniqueFd fd) : fd_(std::move(fd)) {}

  // Both ends close-on-exec. Throws std::system_error.
  static std::pair<Channel, Channel> pair();

  // Waits for room where it must, up to `patience`. False when the other side is gone or takes
  // nothing. Throws std::system_error on what cannot be the other side's doing.
  bool send(const Message& message, int fd_to_pass = -1,
            std::chrono::milliseconds patience = std::chrono::seconds(5));

  // The next whole message, without blocking; poll fd() for readability first. Throws
  // std::system_error where a descriptor came with it and this process may open no more.
  Got receive(Message* message, UniqueFd* passed = nullptr);

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid(); }
  void close() { fd_.reset(); }
  UniqueFd take_fd() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  std::string unfinished_;  // datagrams of a message whose last has not come yet
  UniqueFd passed_;
};

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

// The rendezvous store of one run, kept by the launcher: keys and values are bytes. A get of a key
// that is not there yet is answered when it is set. Clients are numbers chosen by the owner.
//   set ID KEY VALUE -> ID ok     get ID KEY -> ID VALUE     add ID KEY AMOUNT -> ID SUM
//   has ID KEY -> ID 0|1          drop ID KEY (no answer): the get ID is no longer wanted
class RunStore {
 public:
  using Reply = std::function<void(int64_t client, const Channel::Message& reply)>;
  explicit RunStore(Reply reply) : reply_(std::move(reply)) {}

  // False if the message is none of the store's.
  bool handle(int64_t client, const Channel::Message& message);
  // Its gets will not be answered any more.
  void leave(int64_t client);
  size_t parked() const { return parked_.size(); }
  // The key that this client waits for, or empty.
  std::string awaited_by(int64_t client) const;

 private:
  struct Parked {
    int64_t client;
    std::string id;
    std::string key;
  };
  void set(const std::string& key, const std::string& value);

  Reply reply_;
  std::map<std::string, std::string> values_;
  std::vector<Parked> parked_;
};

}  // namespace lockstep
