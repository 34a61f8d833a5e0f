#include "sim/worker/zygote.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <system_error>

#include "scenarios/base/check.h"
#include "scenarios/base/clock.h"
#include "sim/launch/channel.h"
#include "sim/worker/control.h"
#include "sim/worker/stack_dump.h"

namespace lockstep {
namespace {

int count_threads() {
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return -1;
  int count = 0;
  while (const dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.';
  ::closedir(tasks);
  return count;
}

// Nothing that the launcher or its user's shell had set reaches the worker.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number)
    if (number != SIGKILL && number != SIGSTOP) std::signal(number, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);  // Gloo writes without MSG_NOSIGNAL
  std::signal(SIGXFSZ, SIG_IGN);  // beyond a limit of file size writes fail
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void open_log(const WorkerTask& task) {
  const std::string path = log_path(task.run_dir, process_label(task));
  const int log = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) {
    fmt::print(stderr, "cannot write {}: {}\n", path, std::strerror(errno));
    return;
  }
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::close(log);
}

class Zygote {
 public:
  Zygote(int fd, const TaskFunction& run) : channel_(UniqueFd(fd)), run_(run) {}
  int serve();

 private:
  bool handle_messages();
  void start(const std::string& token, const std::string& text, UniqueFd control);
  std::string why_not(const std::optional<WorkerTask>& task, const UniqueFd& control) const;
  void reap();

  Channel channel_;
  const TaskFunction& run_;
  UniqueFd signals_;
  std::map<pid_t, std::string> tokens_;
};

int Zygote::serve() {
  reset_signals();
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  LOCKSTEP_CHECK(signals_.valid(), "signalfd failed");
  channel_.send({"ready", std::to_string(::getpid())});
  while (true) {
    pollfd fds[2] = {{channel_.fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return 1;
    if (fds[1].revents != 0) reap();
    if (fds[0].revents != 0 && !handle_messages()) return 0;
  }
}

bool Zygote::handle_messages() {
  Channel::Message message;
  UniqueFd control;
  while (true) {
    try {
      switch (channel_.receive(&message, &control)) {
        case Channel::Got::closed:
          return false;
        case Channel::Got::nothing:
          return true;
        case Channel::Got::message:
          break;
      }
    } catch (const std::system_error& error) {
      channel_.send({"refused", "", error.what()});
      return true;
    }
    LOCKSTEP_CHECK(message.size() == 3 && message[0] == "start", "unknown message to the zygote");
    start(message[1], message[2], std::move(control));
  }
}

std::string Zygote::why_not(const std::optional<WorkerTask>& task, const UniqueFd& control) const {
  if (!task || !control.valid()) return "the task cannot be read";
  const int threads = count_threads();
  if (threads == 1) return "";
  return fmt::format("the zygote has {} threads; only a process with one can be forked", threads);
}

void Zygote::start(const std::string& token, const std::string& text, UniqueFd control) {
  const std::optional<WorkerTask> task = decode_task(text);
  if (const std::string why = why_not(task, control); !why.empty()) {
    fmt::print(stderr, "lockstep-zygote: {}\n", why);
    channel_.send({"refused", token, why});
    return;
  }
  const pid_t zygote = ::getpid();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    die_with_parent(zygote);
    channel_.close();
    signals_.reset();
    open_log(*task);
    be_worker(*task, control.release(), run_);
  }
  if (pid < 0) {
    channel_.send({"refused", token, std::string("fork: ") + std::strerror(errno)});
    return;
  }
  tokens_[pid] = token;
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  channel_.send({"started", token, std::to_string(pid)}, pidfd.get());
}

// All that have ended go into one message: the launcher sees them as one moment.
void Zygote::reap() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) > 0) {
  }
  Channel::Message message{"ended"};
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found = tokens_.find(pid);
    if (found == tokens_.end()) continue;
    message.insert(message.end(),
                   {found->second, std::to_string(status), std::to_string(now_ns())});
    tokens_.erase(found);
  }
  if (message.size() > 1) channel_.send(message);
}

}  // namespace

void die_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitOrphan);
}

void be_worker(const WorkerTask& task, int control_fd, const TaskFunction& run) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, process_name(task).c_str());
  reset_signals();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a crash loses no line of the log
  dump_stack_on_signal(stack_path(task.run_dir, process_label(task)));
  int code = kExitException;
  try {
    Control control(control_fd);
    code = run(task, control);
  } catch (const std::exception& error) {
    // LibTorch's goes on with a backtrace.
    const std::string text = error.what();
    fmt::print(stderr, "{}: {}\n", process_label(task),
               text.substr(0, text.find("\nException raised")));
  } catch (...) {
    fmt::print(stderr, "{}: an exception of unknown type\n", process_label(task));
  }
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

int run_zygote(int fd, const TaskFunction& run) {
  ::prctl(PR_SET_NAME, "lockstep-zygote");
  return Zygote(fd, run).serve();
}

}  // namespace lockstep
