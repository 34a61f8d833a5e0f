#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/protocol.h"

namespace lockstep {

// A process that the launcher has exec'd: it dies with the launcher's thread, has its own process
// group, /dev/null as stdin, its log as stdout and stderr, default signals, `passed` (if any) as
// descriptor 3 and no other one.
struct Spawned {
  pid_t pid = 0;
  UniqueFd pidfd;
};
struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0], without a slash, is looked for on PATH
  int64_t blas_threads = 1;       // OPENBLAS_, OMP_ and MKL_NUM_THREADS
  std::string log;                // appended to
  int passed = -1;
  // "NAME=value" in place of what the caller has; "NAME" alone is taken away.
  std::vector<std::string> variables = {};
  std::string directory = {};  // in which it runs, and argv[0] is looked for; empty: the caller's
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

// One worker process as the launcher sees it.
struct Worker {
  using OnMessage = std::function<void(const Channel::Message&)>;
  WorkerTask task;
  std::string who;
  Channel control;
  OnMessage on_message;
  bool fresh = false;  // exec'd by the launcher itself
  int64_t token = 0;
  pid_t pid = 0;  // 0: not started yet
  UniqueFd pidfd;
  bool ended = false;
  int status = 0;              // as waitpid gives it, once ended
  int64_t ended_ns = 0;        // CLOCK_MONOTONIC
  bool lost_zygote = false;    // it went down with its zygote
  int pending_signal = 0;      // to be sent once it has started
  bool by_launcher = false;    // we have asked for its end
  bool past_deadline = false;  // ... because it was late
  Deadline kill_at = kNoDeadline;
};

// Starts and watches worker processes, forked by one zygote or each exec'd. Everything arrives
// through the event loop: look at Worker::ended after each wait.
class Workers {
 public:
  struct Options {
    std::string program;
    std::string out_dir;  // of the zygote's log
    bool fresh = false;
  };
  using OnMessage = Worker::OnMessage;

  Workers(EventLoop& loop, Options options);
  ~Workers();  // none is left running
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // `blas_threads` above 1 asks for a process of its own: a zygote must have one thread.
  std::shared_ptr<Worker> start(const WorkerTask& task, int64_t blas_threads, OnMessage on_message);

  // SIGTERM now (which stays pending in a stopped process), SIGKILL after `grace`; without grace
  // SIGKILL at once. A second call can only make it sooner.
  void end(Worker& worker, std::chrono::milliseconds grace);
  // Asks for its stack (protocol.h). False where it would not answer: it is stopped, has ended, or
  // does not know the signal yet.
  bool ask_for_stack(const Worker& worker);
  // Sends the SIGKILLs that are due.
  void tick(Deadline now);
  // Throws std::runtime_error if no zygote can be had.
  void check();
  // How long this thread and the zygote, who learns first of a worker's end, have been ready and
  // without a core so far.
  int64_t core_wait_ns() const;

 private:
  struct Zygote;
  void start_zygote();
  void start_fresh(const std::shared_ptr<Worker>& worker, int64_t blas_threads, Channel theirs);
  void flush_starts();
  void on_zygote();
  void on_zygote_message(const Channel::Message& message, UniqueFd passed);
  void on_zygote_gone();
  void on_ended(const std::shared_ptr<Worker>& worker, int status, int64_t time_ns);
  void on_control(Worker& worker);
  void deliver(Worker& worker, int signal);

  EventLoop& loop_;
  Options options_;
  int64_t last_token_ = 0;
  int zygote_deaths_ = 0;
  std::string problem_;
  std::unique_ptr<Zygote> zygote_;
  std::map<int64_t, std::shared_ptr<Worker>> running_;  // by token
  struct Waiting {
    std::shared_ptr<Worker> worker;
    Channel theirs;
  };
  std::deque<Waiting> to_fork_;
};

}  // namespace lockstep
