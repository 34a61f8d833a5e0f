#include "sim/launch/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>

#include "sim/launch/files.h"

extern char** environ;

namespace lockstep {
namespace {

std::vector<std::string> environment(int64_t blas_threads) {
  const std::string ours[] = {"OPENBLAS_NUM_THREADS=", "OMP_NUM_THREADS=", "MKL_NUM_THREADS="};
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const std::string& name : ours) replaced = replaced || text.starts_with(name);
    if (!replaced) all.push_back(text);
  }
  for (const std::string& name : ours) all.push_back(name + std::to_string(blas_threads));
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
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // kPassedFd may be taken by one of these: report and passed are moved out of the way first.
  const int report = ::fcntl(p.report, F_DUPFD_CLOEXEC, kPassedFd + 2);
  const int passed = ::fcntl(p.passed, F_DUPFD_CLOEXEC, kPassedFd + 2);
  if (place(p.null, 0) && place(p.log, 1) && place(p.log, 2) && place(passed, kPassedFd)) {
    // Whatever the user's shell had open does not reach the worker; `report` closes by exec.
    ::syscall(SYS_close_range, kPassedFd + 1, static_cast<unsigned>(report) - 1, 0);
    ::syscall(SYS_close_range, static_cast<unsigned>(report) + 1, ~0U, 0);
    ::execve(p.argv[0], p.argv.data(), p.environment.data());
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
  const std::vector<std::string> variables = environment(options.blas_threads);
  const UniqueFd log = open_or_fail(options.log, O_WRONLY | O_CREAT | O_APPEND);
  const UniqueFd null = open_or_fail("/dev/null", O_RDONLY);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno(errno, "cannot make a pipe");
  const UniqueFd report(ends[0]);
  UniqueFd child_end(ends[1]);
  const Prepared prepared{
      pointers(options.argv), pointers(variables), ::getpid(), log.get(), null.get(),
      options.passed,         child_end.get()};
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

}  // namespace lockstep
