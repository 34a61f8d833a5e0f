#include "sim/tools/program/launch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "scenarios/base/file.h"
#include "sim/launch/run_files.h"
#include "sim/tools/program/places.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kReasonBytesMost = 4096;

// Free, and bound by `fd`, so that the kernel gives it to nobody who asks for any port. Rank 0
// can listen there all the same: as PyTorch's store does, `fd` allows others to reuse it.
int free_port(const UniqueFd& fd) {
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
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
  std::vector<std::string> all = {program_python_path(launch.agent),
                                  "LOCKSTEP_PROGRAM_DIR=" + launch.folder,
                                  fmt::format("LOCKSTEP_PROGRAM_WORLD={}", launch.world),
                                  fmt::format("LOCKSTEP_PROGRAM_SCALE={}", launch.scale),
                                  "PYTHONDONTWRITEBYTECODE=1",
                                  "MASTER_ADDR=127.0.0.1",
                                  fmt::format("MASTER_PORT={}", port)};
  if (launch.start.pretends_gpus) all.emplace_back("LOCKSTEP_PROGRAM_PRETEND_GPUS=1");
  all.insert(all.end(), launch.variables.begin(), launch.variables.end());
  if (launch.start.spawns) {  // it says itself which rank is which
    all.insert(all.end(), {"LOCKSTEP_PROGRAM_SPAWNS=1", "RANK", "LOCAL_RANK", "WORLD_SIZE",
                           "LOCAL_WORLD_SIZE"});
    return all;
  }
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"})  // those of torchrun on one host
    all.push_back(fmt::format("{}={}", name, rank));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"})
    all.push_back(fmt::format("{}={}", name, launch.world));
  if (::getenv("LT_CLI_USED") != nullptr)  // Lightning's Fabric wants to know the number twice
    all.insert(all.end(), {fmt::format("LT_DEVICES={}", launch.world), "LT_NUM_NODES=1"});
  all.insert(all.end(), {"GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "ROLE_NAME=default"});
  return all;
}

constexpr int kLogTailLines = 10, kShutdownLines = 100, kErrorLines = 40, kAbortLines = 200;
constexpr size_t kSaidMost = 300;  // of a line

// What libraries print as the interpreter ends, after the reason for which it does.
bool is_of_shutdown(const std::string& line) {
  constexpr std::array<std::string_view, 5> kBegins = {
      "nanobind: ", " - leaked ", " - ... skipped ", "See https://nanobind.", "sys:1: "};
  return line.empty() || std::any_of(kBegins.begin(), kBegins.end(), [&](std::string_view begin) {
           return line.starts_with(begin);
         });
}

std::vector<std::string> said_before_shutdown(const std::string& path) {
  std::vector<std::string> all;
  std::istringstream lines(log_tail(path, kLogTailLines + kShutdownLines));
  for (std::string line; std::getline(lines, line);) all.push_back(line.substr(0, kSaidMost));
  while (!all.empty() && is_of_shutdown(all.back())) all.pop_back();
  return all;
}

// As PyTorch begins each line of the traceback that ends a rank.
std::string_view without_rank(std::string_view line) {
  if (!line.starts_with("[rank")) return line;
  const size_t end = line.find("]: ");
  return end == std::string_view::npos ? line : line.substr(end + 3);
}

// The last line; of an exception whose message has several, also the first of them.
std::string last_said(const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  const auto begins = [](const std::string& line) {
    return without_rank(line) == "Traceback (most recent call last):";
  };
  const auto traceback = std::find_if(lines.rbegin(), lines.rend(), begins).base();
  const auto raised = std::find_if(traceback, lines.end(), [](const std::string& line) {
    const std::string_view said = without_rank(line);
    return !said.empty() && said[0] != ' ';
  });
  const bool has_more =
      traceback != lines.begin() && raised != lines.end() && raised != std::prev(lines.end());
  return has_more ? *raised + " ... " + lines.back() : lines.back();
}

// What a C++ exception that nobody caught says, which the frames of its stack follow; empty: none.
std::string what_aborted(const std::string& path) {
  constexpr std::string_view kWhat = "what():";
  std::istringstream lines(log_tail(path, kAbortLines));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line.compare(begin, kWhat.size(), kWhat) != 0) continue;
    const size_t text = line.find_first_not_of(" \t", begin + kWhat.size());
    found = text == std::string::npos ? "" : line.substr(text, kSaidMost);
  }
  return found;
}

}  // namespace

void take_program_end(const ProgramLaunch& launch, const ProgramChild& child, ProgramEnd* end) {
  if (child.signal == 0 && child.exit_code == 0) return;
  const std::string log = program_log(launch.folder, launch.start.spawns ? 0 : child.rank);
  std::vector<std::string> lines = said_before_shutdown(log);
  const std::string last = last_said(lines);
  if (std::ssize(lines) > kLogTailLines) lines.erase(lines.begin(), lines.end() - kLogTailLines);
  end->log_tail = std::move(lines);
  if (child.signal == SIGABRT) end->aborted = what_aborted(log);
  const std::string& said = end->aborted.empty() ? last : end->aborted;
  if (child.signal == 0 && child.exit_code < 0) {  // of a rank that the program had started
    end->why = fmt::format("how rank {} ended is not known: {}", child.rank, said);
    return;
  }
  const std::string who = launch.start.spawns ? "the program" : fmt::format("rank {}", child.rank);
  end->exited = child.signal == 0;
  end->why = fmt::format("{} ended with {} {}: {}", who, end->exited ? "exit code" : "signal",
                         end->exited ? child.exit_code : child.signal, said);
}

std::string late_text(const std::vector<ProgramChild>& children, double limit_s) {
  const auto left = std::count_if(children.begin(), children.end(),
                                  [](const ProgramChild& child) { return !child.ended; });
  return fmt::format("{} of its processes had not ended after {:g} s (--limit)", left, limit_s);
}

namespace {

bool has_any(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

// An error that a log ends with and that names nothing of the kind has nothing to do with GPUs. An
// end without one may have.
bool may_miss_gpus(const std::string& folder) {
  bool errors = false;
  std::error_code error;
  for (int64_t rank = 0; std::filesystem::exists(program_log(folder, rank), error); ++rank) {
    std::string said = log_tail(program_log(folder, rank), kErrorLines);
    std::transform(said.begin(), said.end(), said.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (const size_t last = said.rfind("traceback"); last != std::string::npos) said.erase(0, last);
    if (has_any(said, {"cuda", "gpu", "nccl", "accelerator", "zerodivisionerror"})) return true;
    errors |= has_any(said, {"error", "traceback", "exception"});
  }
  return !errors;
}

}  // namespace

std::string gpu_advice(const std::string& folder) {
  std::error_code error;
  const bool asked = std::filesystem::exists(folder + "/asked_for_gpus", error);
  return asked && may_miss_gpus(folder) ? "it asked whether there are GPUs: try --pretend-gpus"
                                        : "";
}

std::string gpu_advice_after(const std::string& folder) {
  const std::string advice = gpu_advice(folder);
  return advice.empty() ? "" : "; " + advice;
}

std::string agent_advice_after(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder + "/agent", error)) return "";
  return "; no Python that it started has loaded lockstep's agent: does the command set "
         "PYTHONPATH, "
         "or run python with -E, -I or -S?";
}

bool has_resumed(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/resumed", error);
}

bool starts_ranks_itself(const ProgramLaunch& launch) {
  std::error_code error;
  return !launch.start.spawns && std::filesystem::exists(launch.folder + "/spawns", error);
}

std::string other_world(int64_t ran, int64_t asked) {
  return fmt::format(
      "the program ran {} ranks where {} were asked for; does it take its number of ranks from "
      "elsewhere?",
      ran, asked);
}

std::string program_log(const std::string& folder, int64_t rank) {
  return fmt::format("{}/rank-{}.log", folder, rank);
}

ProgramProcesses::~ProgramProcesses() {
  for (const ProgramChild& child : children_) {  // not reaped yet: the number is that of its group
    ::killpg(child.process.pid, SIGKILL);
    kill_and_reap(child.process);
  }
}

void ProgramProcesses::start(const ProgramLaunch& launch) {
  port_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int port = free_port(port_);
  for (int64_t rank = 0; rank < (launch.start.spawns ? 1 : launch.world); ++rank) {
    const SpawnOptions options{.argv = launch.start.command,
                               .log = program_log(launch.folder, rank),
                               .variables = variables(launch, rank, port),
                               .directory = launch.start.directory};
    children_.push_back(
        {launch.zygotes == nullptr ? spawn(options) : launch.zygotes->start(rank, options), rank});
  }
}

std::vector<size_t> ProgramProcesses::look() {
  std::vector<size_t> fresh;
  for (size_t i = 0; i < children_.size(); ++i) {
    ProgramChild& child = children_[i];
    siginfo_t info{};
    if (child.ended) continue;
    const auto id = static_cast<id_t>(child.process.pid);
    if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    child.ended = true;
    (info.si_code == CLD_EXITED ? child.exit_code : child.signal) = info.si_status;
    fresh.push_back(i);
  }
  return fresh;
}

size_t ProgramProcesses::left() const {
  return static_cast<size_t>(std::count_if(children_.begin(), children_.end(),
                                           [](const ProgramChild& child) { return !child.ended; }));
}

namespace {

Clock::time_point deadline_of(const ProgramLaunch& launch) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(launch.limit_s));
}

ProgramEnd run_once(const ProgramLaunch& launch, Signals* signals) {
  ProgramProcesses processes;
  ProgramEnd end;
  if (launch.zygotes != nullptr) launch.zygotes->wait(deadline_of(launch), *signals);
  const auto until = deadline_of(launch);
  try {
    processes.start(launch);
  } catch (const std::system_error& error) {
    end.why = error.what();
  }
  while (end.why.empty() && processes.left() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (const size_t i : processes.look())
      if (end.why.empty()) take_program_end(launch, processes.children()[i], &end);
    end.signal = signals->next();
    if (end.signal != 0) end.why = "interrupted";
    if (end.why.empty() && processes.left() > 0 && Clock::now() > until)
      end.why = late_text(processes.children(), launch.limit_s);
  }
  return end;
}

// Why a forked rank says that only a fresh process would do; empty if none does.
std::string wants_fresh(const ProgramLaunch& launch) {
  if (launch.zygotes == nullptr || !launch.zygotes->fork()) return "";
  auto why = read_foreign_file(launch.folder + "/fresh", kReasonBytesMost);
  return why ? why.value() : "";
}

}  // namespace

bool begins_anew(const ProgramLaunch& launch) {
  const std::string why = wants_fresh(launch);
  if (why.empty()) return false;
  launch.zygotes->give_up(why);
  std::error_code error;
  std::filesystem::remove_all(launch.folder, error);
  std::filesystem::create_directory(launch.folder, error);
  return true;
}

ProgramEnd run_program(const ProgramLaunch& launch, Signals* signals) {
  ProgramEnd end = run_once(launch, signals);
  if (end.signal != 0) return end;
  if (starts_ranks_itself(launch)) {
    end = ProgramEnd();
    end.why = kStartsRanksItself;
    return end;
  }
  return end.why.empty() || !begins_anew(launch) ? end : run_once(launch, signals);
}

}  // namespace lockstep
