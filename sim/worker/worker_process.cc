#include "sim/worker/worker_process.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <system_error>
#include <thread>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

void wait_readable(int fd, Deadline deadline) {
  pollfd p{fd, POLLIN, 0};
  if (::poll(&p, 1, static_cast<int>(time_left(deadline).count())) < 0 && errno != EINTR)
    throw std::system_error(errno, std::generic_category(), "poll of the control socket");
}

constexpr int kFramesMax = 64;
constexpr int kHandlerFrames = 2;  // the handler itself, and what called it

// A handler can be given nothing: this is what it needs.
std::array<char, 4096> stack_file{};

// System calls, and backtrace() once its library is loaded: nothing that allocates or locks.
void write_stack(int) {
  const int saved = errno;
  const int file = ::open(stack_file.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file >= 0) {
    std::array<void*, kFramesMax> frames;
    const int count = ::backtrace(frames.data(), kFramesMax);
    if (count > kHandlerFrames)
      ::backtrace_symbols_fd(frames.data() + kHandlerFrames, count - kHandlerFrames, file);
    [[maybe_unused]] const ssize_t written = ::write(file, kStackEnd, std::strlen(kStackEnd));
    ::close(file);
  }
  errno = saved;
}

constexpr auto kForThreadsToEnd = std::chrono::seconds(10);

int count_threads() {
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return -1;
  int count = 0;
  while (const dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.';
  ::closedir(tasks);
  return count;
}

// A joined thread is listed until the kernel has taken it away, which can take as long as others
// have its core: LibTorch joins one when it is told to use a single thread.
void wait_until_alone(Deadline deadline) {
  while (count_threads() != 1 && time_left(deadline).count() > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
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

Control::Control(int fd) : channel_(UniqueFd(fd)) {}
Control::~Control() = default;

void Control::send(const Channel::Message& message) {
  // A launcher that takes nothing for this long is stopped, not gone: still nobody to work for.
  if (!channel_.send(message, -1, std::chrono::minutes(1))) ::_exit(kExitOrphan);
}

bool Control::request(Channel::Message message, Deadline deadline, Channel::Message* reply) {
  const std::string id = std::to_string(++last_id_);
  message.insert(message.begin() + 1, id);
  send(message);
  while (true) {
    switch (channel_.receive(reply)) {
      case Channel::Got::closed:
        ::_exit(kExitOrphan);
      case Channel::Got::nothing:
        break;
      case Channel::Got::message:
        LOCKSTEP_CHECK(reply->size() >= 2, "an answer of the launcher without content");
        if (reply->front() == id) return true;
        continue;  // the late answer to a request that was given up
    }
    if (time_left(deadline).count() == 0) {
      send({"drop", id, message.back()});
      return false;
    }
    wait_readable(channel_.fd(), deadline);
  }
}

void Control::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"set", key, value}, kNoDeadline, &reply);
}

bool Control::get(const std::string& key, Deadline deadline, std::string* value) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  if (!request({"get", key}, deadline, &reply)) return false;
  *value = std::move(reply[1]);
  return true;
}

int64_t Control::add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"add", key, std::to_string(amount)}, kNoDeadline, &reply);
  return std::strtoll(reply[1].c_str(), nullptr, 10);
}

bool Control::has(const std::string& key) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"has", key}, kNoDeadline, &reply);
  return reply[1] == "1";
}

bool Control::next_run(std::string* plan_text) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"next"}, kNoDeadline, &reply);
  if (reply[1] != "run") return false;
  LOCKSTEP_CHECK(reply.size() == 3, "a run without a plan");
  *plan_text = std::move(reply[2]);
  return true;
}

void Control::run_done(const std::string& evidence) {
  const std::lock_guard lock(mutex_);
  send({"done", evidence});
}

void dump_stack_on_signal(const std::string& path) {
  if (path.size() >= stack_file.size()) return;
  std::memcpy(stack_file.data(), path.c_str(), path.size() + 1);
  std::array<void*, 1> frame;
  ::backtrace(frame.data(), 1);  // loads what unwinds: a handler may not
  struct sigaction action {};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(stack_signal(), &action, nullptr);
}

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
  wait_until_alone(deadline_after(kForThreadsToEnd));
  return Zygote(fd, run).serve();
}

}  // namespace lockstep
