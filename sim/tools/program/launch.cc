#include "sim/tools/program/launch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "scenarios/base/file.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Free now; that nobody takes it before rank 0 does is likely, not certain.
int free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), where, size) != 0 || ::getsockname(fd.get(), where, &size) != 0)
    return 29500;
  return ntohs(address.sin_port);
}

std::vector<std::string> environment(const ProgramLaunch& launch, int64_t rank, int port) {
  std::vector<std::string> all;
  std::string path = launch.agent;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("PYTHONPATH=")) path += ":" + text.substr(strlen("PYTHONPATH="));
    const std::string name = text.substr(0, text.find('='));
    if (name != "PYTHONPATH" && name != "RANK" && name != "LOCAL_RANK" && name != "WORLD_SIZE" &&
        name != "MASTER_PORT" && name != "MASTER_ADDR" && name != "OMP_NUM_THREADS")
      all.push_back(text);
  }
  for (const std::string& more :
       {"PYTHONPATH=" + path, "LOCKSTEP_PROGRAM_DIR=" + launch.folder,
        fmt::format("LOCKSTEP_PROGRAM_WORLD={}", launch.world),
        fmt::format("LOCKSTEP_PROGRAM_SCALE={}", launch.scale), std::string("OMP_NUM_THREADS=1"),
        std::string("PYTHONDONTWRITEBYTECODE=1"), std::string("MASTER_ADDR=127.0.0.1"),
        fmt::format("MASTER_PORT={}", port)})
    all.push_back(more);
  if (launch.spawns) return all;
  all.push_back(fmt::format("RANK={}", rank));
  all.push_back(fmt::format("LOCAL_RANK={}", rank));
  all.push_back(fmt::format("WORLD_SIZE={}", launch.world));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// A process group of its own, which ends with us.
pid_t start(const ProgramLaunch& launch, int64_t rank, int port) {
  auto words = launch.command;
  auto variables = environment(launch, rank, port);
  const auto argv = pointers(words), envp = pointers(variables);
  const std::string log = fmt::format("{}/rank-{}.log", launch.folder, rank);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;  // our own are blocked while we wait
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int out = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  const int in = ::open("/dev/null", O_RDONLY);
  if (out < 0 || in < 0) ::_exit(126);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::execvpe(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

std::string last_line(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return "";
  std::string all = text.value();
  while (!all.empty() && all.back() == '\n') all.pop_back();
  const size_t begin = all.rfind('\n');
  return all.substr(begin == std::string::npos ? 0 : begin + 1).substr(0, 300);
}

std::string end_of(const ProgramLaunch& launch, int64_t rank, const siginfo_t& info) {
  const std::string said = last_line(fmt::format("{}/rank-{}.log", launch.folder, rank));
  const std::string who = launch.spawns ? "the program" : fmt::format("rank {}", rank);
  if (info.si_code == CLD_EXITED && info.si_status == 0) return "";
  if (info.si_code == CLD_EXITED && info.si_status == 127 && said.empty())
    return fmt::format("cannot start {}", launch.command[0]);
  return fmt::format("{} ended with {} {}: {}", who,
                     info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status, said);
}

// The processes of one run, each the first of a group of its own; whole groups end with it.
class Processes {
 public:
  Processes() = default;
  ~Processes() {
    for (const Child& child : children_) {  // not reaped yet: the number is still that of our group
      ::setpgid(child.pid, child.pid);
      ::killpg(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Empty, or why it could not be.
  std::string start_all(const ProgramLaunch& launch) {
    const int port = free_port();
    for (int64_t rank = 0; rank < (launch.spawns ? 1 : launch.world); ++rank) {
      const pid_t pid = start(launch, rank, port);
      if (pid < 0) return fmt::format("cannot start rank {}: {}", rank, strerror(errno));
      children_.push_back({pid, rank});
    }
    return "";
  }

  // How the first that did not end well ended; empty as long as there is none.
  std::string look(const ProgramLaunch& launch) {
    for (Child& child : children_) {
      siginfo_t info{};
      if (child.ended) continue;
      const auto id = static_cast<id_t>(child.pid);
      if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        continue;
      child.ended = true;
      if (std::string why = end_of(launch, child.rank, info); !why.empty()) return why;
    }
    return "";
  }

  size_t left() const {
    return static_cast<size_t>(std::count_if(children_.begin(), children_.end(),
                                             [](const Child& child) { return !child.ended; }));
  }

 private:
  struct Child {
    pid_t pid = 0;
    int64_t rank = 0;
    bool ended = false;
  };
  std::vector<Child> children_;
};

}  // namespace

ProgramEnd run_program(const ProgramLaunch& launch, Signals* signals) {
  const auto until = Clock::now() + std::chrono::duration<double>(launch.limit_s);
  Processes processes;
  ProgramEnd end;
  end.why = processes.start_all(launch);
  while (end.why.empty() && processes.left() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    end.why = processes.look(launch);
    end.signal = signals->next();
    if (end.signal != 0) end.why = "interrupted";
    if (end.why.empty() && processes.left() > 0 && Clock::now() > until)
      end.why = fmt::format("{} of its processes had not ended after {:g} s (--limit)",
                            processes.left(), launch.limit_s);
  }
  return end;
}

}  // namespace lockstep
