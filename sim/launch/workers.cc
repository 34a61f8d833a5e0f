#include "sim/launch/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <system_error>

#include "scenarios/base/error.h"
#include "sim/launch/executor.h"
#include "sim/launch/run_files.h"
#include "sim/record/core_wait.h"

extern char** environ;
namespace lockstep {
namespace {

std::string name_of_variable(const std::string& text) { return text.substr(0, text.find('=')); }

std::vector<std::string> environment(const SpawnOptions& options) {
  std::vector<std::string> ours = options.variables;
  for (const char* name : {"OPENBLAS_NUM_THREADS=", "OMP_NUM_THREADS=", "MKL_NUM_THREADS="})
    ours.push_back(name + std::to_string(options.blas_threads));
  std::set<std::string> replaced;
  for (const std::string& text : ours) replaced.insert(name_of_variable(text));
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!replaced.contains(name_of_variable(*entry))) all.emplace_back(*entry);
  for (const std::string& text : ours)
    if (text.find('=') != std::string::npos) all.push_back(text);
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

struct Prepared {
  std::vector<char*> argv, environment;
  pid_t launcher;
  int log, null, passed, report;
  const char* directory;  // or null
};

// Moves `from` to descriptor `to`, and keeps it over exec.
bool place(int from, int to) {
  if (from == to) return ::fcntl(to, F_SETFD, 0) == 0;
  return ::dup2(from, to) == to;
}

// In the child, up to exec: system calls only.
void become(const Prepared& p) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != p.launcher) ::_exit(1);
  ::setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) {
    // A Ctrl-C that came before this process left the launcher's group is the launcher's.
    ::signal(number, SIG_IGN);
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // kPassedFd may be taken by one of these: report and passed are moved out of the way first.
  const int report = ::fcntl(p.report, F_DUPFD_CLOEXEC, kPassedFd + 2);
  const bool passes = p.passed >= 0;
  const int passed = passes ? ::fcntl(p.passed, F_DUPFD_CLOEXEC, kPassedFd + 2) : -1;
  const bool there = p.directory == nullptr || ::chdir(p.directory) == 0;
  if (there && place(p.null, 0) && place(p.log, 1) && place(p.log, 2) &&
      (!passes || place(passed, kPassedFd))) {
    // Whatever the user's shell had open does not reach the worker; `report` closes by exec.
    const int first = passes ? kPassedFd + 1 : kPassedFd;
    ::syscall(SYS_close_range, first, static_cast<unsigned>(report) - 1, 0);
    ::syscall(SYS_close_range, static_cast<unsigned>(report) + 1, ~0U, 0);
    ::execvpe(p.argv[0], p.argv.data(), p.environment.data());
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

UniqueFd open_or_fail(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (!fd.valid()) throw_errno(errno, "cannot open " + path);
  return fd;
}

// The exec's errno, or 0 when it has succeeded and so closed the pipe.
int exec_error(int report) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(report, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

}  // namespace

Spawned spawn(const SpawnOptions& options) {
  const std::vector<std::string> variables = environment(options);
  const UniqueFd log = open_or_fail(options.log, O_WRONLY | O_CREAT | O_APPEND);
  const UniqueFd null = open_or_fail("/dev/null", O_RDONLY);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno(errno, "cannot make a pipe");
  const UniqueFd report(ends[0]);
  UniqueFd child_end(ends[1]);
  const Prepared prepared{pointers(options.argv),
                          pointers(variables),
                          ::getpid(),
                          log.get(),
                          null.get(),
                          options.passed,
                          child_end.get(),
                          options.directory.empty() ? nullptr : options.directory.c_str()};
  Spawned child;
  child.pid = ::fork();
  if (child.pid < 0) throw_errno(errno, "cannot start a process");
  if (child.pid == 0) become(prepared);
  child_end.reset();
  child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  const int pidfd_error = child.pidfd.valid() ? 0 : errno;
  const int error = exec_error(report.get());
  if (error != 0 || pidfd_error != 0) {
    kill_and_reap(child);
    throw_errno(error != 0 ? error : pidfd_error, "cannot start " + options.argv[0]);
  }
  return child;
}

void send_signal(const UniqueFd& pidfd, int signal) {
  if (pidfd.valid()) ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
}

int try_reap(const Spawned& child) {
  int status = 0;
  const pid_t got = ::waitpid(child.pid, &status, WNOHANG);
  if (got == child.pid) return status;
  // Somebody else has reaped our child: it has ended, nobody can say how any more.
  return got < 0 && errno == ECHILD ? W_EXITCODE(1, 0) : -1;
}

void kill_and_reap(const Spawned& child) {
  if (child.pid <= 0) return;
  send_signal(child.pidfd, SIGKILL);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
}

namespace {

constexpr size_t kForksInFlight = 32;  // more could fill both directions of the socket
constexpr int kZygotesMax = 3;

// Until the other end of its control socket is closed everywhere: in the zygote, and by the death
// of the worker, started or about to be.
void wait_until_gone(const Worker& worker) {
  pollfd end{worker.control.fd(), 0, 0};
  if (worker.control.is_open()) ::poll(&end, 1, 1000);
}

int64_t number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

struct Workers::Zygote {
  Spawned process;
  Channel channel;
  std::string log;
  bool ready = false;
  bool killed = false;  // by us
  size_t in_flight = 0;
};

Workers::Workers(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Workers::~Workers() {
  for (const auto& [token, worker] : running_) {
    deliver(*worker, SIGKILL);
    loop_.forget(worker->control.fd());
    if (!worker->fresh) continue;  // the zygote's, and it goes with it
    loop_.forget(worker->pidfd.get());
    int status = 0;
    ::waitpid(worker->pid, &status, 0);
  }
  if (!zygote_) return;
  loop_.forget(zygote_->channel.fd());
  loop_.forget(zygote_->process.pidfd.get());
  kill_and_reap(zygote_->process);
  remove_if_empty(zygote_->log);
  zygote_.reset();
  to_fork_.clear();
  for (const auto& [token, worker] : running_)
    if (!worker->fresh) wait_until_gone(*worker);
}

void Workers::start_zygote() {
  auto [ours, theirs] = Channel::pair();
  zygote_ = std::make_unique<Zygote>();
  zygote_->log = log_path(options_.out_dir, "zygote");
  zygote_->process = spawn(
      {{options_.program, "--zygote", std::to_string(kPassedFd)}, 1, zygote_->log, theirs.fd()});
  zygote_->channel = std::move(ours);
  loop_.watch(zygote_->channel.fd(), [this] { on_zygote(); });
  loop_.watch(zygote_->process.pidfd.get(), [this] { on_zygote_gone(); });
}

std::shared_ptr<Worker> Workers::start(const WorkerTask& task, int64_t blas_threads,
                                       OnMessage on_message) {
  auto [ours, theirs] = Channel::pair();
  auto worker = std::make_shared<Worker>();
  worker->task = task;
  worker->who = process_label(task);
  worker->token = ++last_token_;
  worker->control = std::move(ours);
  worker->on_message = std::move(on_message);
  worker->fresh = options_.fresh || blas_threads > 1;
  if (worker->fresh) {
    start_fresh(worker, blas_threads, std::move(theirs));
  } else {
    if (!zygote_) start_zygote();
    to_fork_.push_back({worker, std::move(theirs)});
  }
  running_[worker->token] = worker;
  loop_.watch(worker->control.fd(), [this, worker] { on_control(*worker); });
  flush_starts();
  return worker;
}

void Workers::start_fresh(const std::shared_ptr<Worker>& worker, int64_t blas_threads,
                          Channel theirs) {
  Spawned spawned = spawn(
      {{options_.program, "--task", encode(worker->task), "--control", std::to_string(kPassedFd)},
       blas_threads,
       log_path(worker->task.run_dir, worker->who),
       theirs.fd()});
  worker->pid = spawned.pid;
  worker->pidfd = std::move(spawned.pidfd);
  loop_.watch(worker->pidfd.get(), [this, worker] {
    int status = 0;
    const pid_t got = ::waitpid(worker->pid, &status, WNOHANG);
    if (got == 0) return;
    loop_.forget(worker->pidfd.get());
    on_ended(worker, got == worker->pid ? status : W_EXITCODE(1, 0), now_ns());
  });
}

int64_t Workers::core_wait_ns() const {
  const int64_t own_ns = core_wait_of_main_thread(::getpid());
  return own_ns + (zygote_ ? core_wait_of_main_thread(zygote_->process.pid) : 0);
}

void Workers::flush_starts() {
  while (zygote_ && !to_fork_.empty() && zygote_->in_flight < kForksInFlight) {
    const Waiting next = std::move(to_fork_.front());
    to_fork_.pop_front();
    ++zygote_->in_flight;
    // If it is gone, its pidfd will say so.
    if (!zygote_->channel.send(
            {"start", std::to_string(next.worker->token), encode(next.worker->task)},
            next.theirs.fd()))
      return;
  }
}

void Workers::on_zygote() {
  Channel::Message message;
  UniqueFd passed;
  while (zygote_) {
    const Channel::Got got = zygote_->channel.receive(&message, &passed);
    if (got == Channel::Got::closed) loop_.forget(zygote_->channel.fd());
    if (got != Channel::Got::message) break;
    on_zygote_message(message, std::move(passed));
  }
  flush_starts();
}

void Workers::on_zygote_message(const Channel::Message& message, UniqueFd passed) {
  if (message[0] == "ready") {
    zygote_->ready = true;
  } else if (message[0] == "started" && message.size() == 3) {
    --zygote_->in_flight;
    const std::shared_ptr<Worker> worker = running_.at(number(message[1]));
    worker->pid = static_cast<pid_t>(number(message[2]));
    worker->pidfd = std::move(passed);
    // Without it nothing could end this process: all that the zygote started goes with the zygote.
    if (!worker->pidfd.valid())
      problem_ = fmt::format("cannot start {}: the zygote could open no descriptor of its process",
                             worker->who);
    if (worker->pending_signal != 0) deliver(*worker, worker->pending_signal);
  } else if (message[0] == "ended") {
    for (size_t i = 1; i + 2 < message.size(); i += 3)
      on_ended(running_.at(number(message[i])), static_cast<int>(number(message[i + 1])),
               number(message[i + 2]));
  } else if (message[0] == "refused" && message.size() == 3) {
    problem_ = "cannot start a worker: " + message[2];
  } else {
    LOCKSTEP_CHECK(false, "unknown message from the zygote: " + message[0]);
  }
}

// Its workers go down with it: none of them failed by itself.
void Workers::on_zygote_gone() {
  loop_.forget(zygote_->process.pidfd.get());
  on_zygote();  // what it still had to say
  loop_.forget(zygote_->channel.fd());
  const int status = try_reap(zygote_->process);
  const bool hopeless = (!zygote_->ready && !zygote_->killed) || ++zygote_deaths_ == kZygotesMax;
  if (hopeless)
    problem_ =
        fmt::format("{} {}: {}", options_.program, describe_end(status), log_tail(zygote_->log, 3));
  zygote_.reset();
  to_fork_.clear();
  const auto lost = running_;
  for (const auto& [token, worker] : lost) {
    if (worker->fresh) continue;
    deliver(*worker, SIGKILL);
    wait_until_gone(*worker);
    worker->lost_zygote = worker->by_launcher = true;
    on_ended(worker, SIGKILL, now_ns());
  }
}

void Workers::on_control(Worker& worker) {
  Channel::Message message;
  while (worker.control.is_open()) {
    const Channel::Got got = worker.control.receive(&message);
    if (got == Channel::Got::nothing) return;
    if (got == Channel::Got::closed) {
      loop_.forget(worker.control.fd());
      worker.control.close();
      return;
    }
    worker.on_message(message);
  }
}

void Workers::on_ended(const std::shared_ptr<Worker>& worker, int status, int64_t time_ns) {
  on_control(*worker);  // its last words
  if (worker->control.is_open()) {
    loop_.forget(worker->control.fd());
    worker->control.close();
  }
  worker->ended = true;
  worker->status = status;
  worker->ended_ns = time_ns;
  worker->on_message = nullptr;  // it may hold what holds the worker
  worker->pidfd.reset();
  running_.erase(worker->token);
}

void Workers::deliver(Worker& worker, int signal) {
  if (worker.pid == 0)
    worker.pending_signal = signal;
  else
    send_signal(worker.pidfd, signal);
}

void Workers::end(Worker& worker, std::chrono::milliseconds grace) {
  if (worker.ended) return;
  const Deadline kill_at = deadline_after(grace);
  if (!worker.by_launcher) deliver(worker, grace.count() > 0 ? SIGTERM : SIGKILL);
  worker.by_launcher = true;
  worker.kill_at = std::min(worker.kill_at, kill_at);
}

bool Workers::ask_for_stack(const Worker& worker) {
  if (worker.ended || worker.pid == 0 || is_stopped(read_process_state(worker.pid)) ||
      !catches_signal(worker.pid, stack_signal()))
    return false;
  send_signal(worker.pidfd, stack_signal());
  return true;
}

void Workers::tick(Deadline now) {
  for (const auto& [token, worker] : running_) {
    if (now < worker->kill_at) continue;
    worker->kill_at = kNoDeadline;
    deliver(*worker, SIGKILL);
    // It never started: the zygote itself does not answer.
    if (worker->pid != 0 || !zygote_) continue;
    zygote_->killed = true;
    send_signal(zygote_->process.pidfd, SIGKILL);
  }
}

void Workers::check() {
  if (!problem_.empty()) throw std::runtime_error(problem_);
}

}  // namespace lockstep
