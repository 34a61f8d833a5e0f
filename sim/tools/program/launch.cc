#include "sim/tools/program/launch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "scenarios/base/file.h"
#include "sim/launch/run_files.h"
#include "sim/launch/workers.h"

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

std::vector<std::string> variables(const ProgramLaunch& launch, int64_t rank, int port) {
  const char* path = ::getenv("PYTHONPATH");
  std::vector<std::string> all = {
      "PYTHONPATH=" + launch.agent + (path == nullptr ? "" : std::string(":") + path),
      "LOCKSTEP_PROGRAM_DIR=" + launch.folder,
      fmt::format("LOCKSTEP_PROGRAM_WORLD={}", launch.world),
      fmt::format("LOCKSTEP_PROGRAM_SCALE={}", launch.scale),
      "PYTHONDONTWRITEBYTECODE=1",
      "MASTER_ADDR=127.0.0.1",
      fmt::format("MASTER_PORT={}", port)};
  if (launch.spawns) {  // it says itself which rank is which
    all.insert(all.end(), {"RANK", "LOCAL_RANK", "WORLD_SIZE"});
    return all;
  }
  all.push_back(fmt::format("RANK={}", rank));
  all.push_back(fmt::format("LOCAL_RANK={}", rank));
  all.push_back(fmt::format("WORLD_SIZE={}", launch.world));
  return all;
}

std::string log_of(const ProgramLaunch& launch, int64_t rank) {
  return fmt::format("{}/rank-{}.log", launch.folder, rank);
}

std::string end_of(const ProgramLaunch& launch, int64_t rank, const siginfo_t& info) {
  const std::string said = log_tail(log_of(launch, rank), 1).substr(0, 300);
  const std::string who = launch.spawns ? "the program" : fmt::format("rank {}", rank);
  if (info.si_code == CLD_EXITED && info.si_status == 0) return "";
  return fmt::format("{} ended with {} {}: {}", who,
                     info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status, said);
}

// The processes of one run, each the first of a group of its own; whole groups end with it.
class Processes {
 public:
  Processes() = default;
  ~Processes() {
    for (const Child& child : children_) {  // not reaped yet: the number is still that of its group
      ::killpg(child.process.pid, SIGKILL);
      kill_and_reap(child.process);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Throws std::system_error.
  void start_all(const ProgramLaunch& launch) {
    const int port = free_port();
    for (int64_t rank = 0; rank < (launch.spawns ? 1 : launch.world); ++rank)
      children_.push_back({spawn({.argv = launch.command,
                                  .log = log_of(launch, rank),
                                  .variables = variables(launch, rank, port)}),
                           rank});
  }

  // How the first that did not end well ended; empty as long as there is none.
  std::string look(const ProgramLaunch& launch) {
    for (Child& child : children_) {
      siginfo_t info{};
      if (child.ended) continue;
      const auto id = static_cast<id_t>(child.process.pid);
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
    Spawned process;
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
  try {
    processes.start_all(launch);
  } catch (const std::system_error& error) {
    end.why = error.what();
  }
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
