#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/launch/protocol.h"

namespace lockstep {

// A worker's end of its control socket to the launcher (SOCK_SEQPACKET): the rendezvous store of
// the run, served by the launcher, and messages of a thread host. Thread-safe: one request at a
// time. When the launcher is gone the process exits (kExitOrphan). No LibTorch.
class Control {
 public:
  explicit Control(int fd);  // owns fd
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Store of the run; keys and values are bytes. Only get() waits for another worker: false past
  // the deadline. A number that add() made reads as decimal text; add() to a new key starts at 0.
  void set(const std::string& key, const std::string& value);
  bool get(const std::string& key, Deadline deadline, std::string* value);
  int64_t add(const std::string& key, int64_t amount);
  bool has(const std::string& key);

  // Thread hosts: the next message (a plan as JSON text) or false when there are no more; then the
  // word that this run is done, after which the launcher reads the records. `evidence`: a JSON
  // array with one to_json_text() per rank.
  bool next_run(std::string* plan_text);
  void run_done(const std::string& evidence);

 private:
  // The answer to a message; nothing past the deadline.
  bool request(Channel::Message message, Deadline deadline, Channel::Message* reply);
  void send(const Channel::Message& message);

  Channel channel_;
  std::mutex mutex_;
  uint64_t last_id_ = 0;
};

// From here on stack_signal() makes this process write the stack of the thread that gets it (the
// main one, unless it blocks the signal) to `path`, innermost frame first, with kStackEnd as the
// last line; then it goes on. Once in a process, before other threads begin. Names are those of the
// dynamic symbol table: functions of our own have them because the worker exports them.
void dump_stack_on_signal(const std::string& path);

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
