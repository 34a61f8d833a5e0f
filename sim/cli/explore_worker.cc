#include "sim/cli/explore_worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/worker_program.h"

extern char** environ;

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSilenceMs = 60'000;

// The worker and what it prints.
class Process {
 public:
  // Its standard error is ours.
  Process(const std::string& program, const std::string& file) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
      problem_ = strerror(errno);
      return;
    }
    out_.reset(fds[0]);
    const UniqueFd theirs(fds[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    std::string words[] = {program, "--explore", file};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      problem_ = strerror(error);
      return;
    }
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Process() {
    if (pid_ > 0) reap();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& problem() const { return problem_; }
  int out() const { return out_.get(); }
  void signal(int number) const {
    syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
  }
  std::string reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                               : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  }

 private:
  UniqueFd out_, pidfd_;
  pid_t pid_ = 0;
  std::string problem_;
};

// Lines of a worker until its last one.
class Conversation {
 public:
  Conversation(Process& process, Signals& signals, const std::function<void(int64_t)>& progress)
      : process_(process), signals_(signals), progress_(progress) {}

  ExploreResult listen() {
    for (;;) {
      pollfd ready[] = {{process_.out(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      const int n = poll(ready, 2, kSilenceMs);
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) {
        process_.signal(SIGKILL);
        return broken(
            fmt::format("no schedule ended within {} s: a rank waits where the scheduler "
                        "does not see it, or its step is long",
                        kSilenceMs / 1000));
      }
      if (ready[1].revents != 0) pass_on();
      if (ready[0].revents != 0 && !read_some()) return ended();
    }
  }

 private:
  void pass_on() {
    const int number = signals_.next();
    if (number == 0) return;
    signal_ = number;
    process_.signal(number);
  }

  bool read_some() {
    char buffer[4096];
    const ssize_t got = read(process_.out(), buffer, sizeof buffer);
    if (got <= 0) return got < 0 && errno == EINTR;
    text_.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      take(text_.substr(0, end));
    return true;
  }

  void take(const std::string& line) {
    const Json json = json_or_discarded(line);
    if (!json.is_object()) return;
    if (json.contains("explored") && json["explored"].is_number_integer())
      progress_(json["explored"].get<int64_t>());
    if (json.contains("result")) result_ = explore_result_from_json(json["result"]);
  }

  ExploreResult ended() {
    const std::string how = process_.reap();
    if (!result_) return broken("lockstep-worker " + how);
    return std::move(*result_);
  }
  ExploreResult broken(std::string why) const {
    ExploreResult result;
    result.signal = signal_;
    if (signal_ == 0) result.broken = std::move(why);
    return result;
  }

  Process& process_;
  Signals& signals_;
  const std::function<void(int64_t)>& progress_;
  std::string text_;
  std::optional<ExploreResult> result_;
  int signal_ = 0;
};

}  // namespace

ExploreResult explore_in_worker(const std::string& worker, const RunPlan& plan,
                                const ExploreSpec& spec, Signals& signals,
                                const std::function<void(int64_t)>& progress) {
  ExploreResult result;
  const Json given = {{"plan", as_json(plan)}, {"spec", as_json(spec)}};
  const auto file = hand_over(given.dump(), &result.broken);
  if (!file) return result;
  Process process(worker, *file);
  result.broken = process.problem();
  if (!result.broken.empty()) return result;
  return Conversation(process, signals, progress).listen();
}

}  // namespace lockstep
