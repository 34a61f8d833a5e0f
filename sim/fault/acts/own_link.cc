#include "sim/fault/acts/own_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

constexpr const char* kLink = "link0";
constexpr const char* kSwitches[] = {"switch0",
                                     "switch1"};  // the second: other side of a partition
// Half of what a kernel tick of 4 ms lets through is lost without it.
constexpr double kBurstMs = 4;
constexpr double kBurstBytesMin = 16e3;
constexpr int64_t kRanksOfThirdByte = 250;

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

UniqueFd open_space(const std::string& path) {
  UniqueFd space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!space.valid()) throw_errno("opening the network namespace " + path);
  return space;
}

UniqueFd this_space() { return open_space("/proc/thread-self/ns/net"); }

std::string path_of(const UniqueFd& space) {
  return fmt::format("/proc/{}/fd/{}", getpid(), space.get());
}

std::string read_all(int fd) {
  std::string text;
  char buffer[512];
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// Throws std::runtime_error with what the command wrote if it fails.
void run_command(const std::string& line) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe");
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {1, 2}) posix_spawn_file_actions_adddup2(&actions, in.get(), fd);
  const std::string script = "PATH=$PATH:/usr/sbin:/sbin; exec " + line;
  const char* argv[] = {"sh", "-c", script.c_str(), nullptr};
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, "/bin/sh", &actions, nullptr, const_cast<char**>(argv), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error(line + ": " + std::strerror(failed));
  in.reset();
  const std::string text = read_all(out.get());
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) throw std::runtime_error(line + ": " + text);
}

void run_in(const UniqueFd& space, const std::string& line) {
  run_command("nsenter --net=" + path_of(space) + " " + line);
}

std::string address_of(int64_t rank) {
  return fmt::format("10.213.{}.{}", rank / kRanksOfThirdByte, rank % kRanksOfThirdByte + 1);
}

}  // namespace

std::unique_ptr<RunSwitch> RunSwitch::make(std::string* why) {
  try {
    const UniqueFd before = this_space();
    if (unshare(CLONE_NEWNET) != 0) throw_errno("a network namespace");
    UniqueFd space = this_space();
    if (setns(before.get(), CLONE_NEWNET) != 0) throw_errno("back to the first namespace");
    for (const char* name : kSwitches) {
      run_in(space, fmt::format("ip link add {} type bridge", name));
      run_in(space, fmt::format("ip link set {} up", name));
    }
    return std::unique_ptr<RunSwitch>(new RunSwitch(std::move(space)));
  } catch (const std::runtime_error& error) {
    *why = error.what();
    return nullptr;
  }
}

std::string RunSwitch::path() const { return path_of(space_); }

OwnLink::OwnLink(UniqueFd own, UniqueFd run_switch, int64_t rank)
    : own_(std::move(own)),
      switch_(std::move(run_switch)),
      address_(address_of(rank)),
      port_(fmt::format("port{}", rank)) {}

std::unique_ptr<OwnLink> OwnLink::join(const std::string& switch_path, int64_t rank) {
  UniqueFd run_switch = open_space(switch_path);
  if (unshare(CLONE_NEWNET) != 0) throw_errno("a network namespace");
  std::unique_ptr<OwnLink> link(new OwnLink(this_space(), std::move(run_switch), rank));
  run_in(link->own_, fmt::format("ip link add {} type veth peer name {} netns {}", kLink,
                                 link->port_, path_of(link->switch_)));
  run_in(link->switch_, fmt::format("ip link set {} master {} up", link->port_, kSwitches[0]));
  run_in(link->own_, fmt::format("ip addr add {}/16 dev {}", link->address_, kLink));
  for (const char* name : {"lo", kLink}) run_in(link->own_, fmt::format("ip link set {} up", name));
  return link;
}

void OwnLink::limit_mb_per_s(double mb_per_s) {
  if (mb_per_s == limit_mb_per_s_) return;
  limit_mb_per_s_ = mb_per_s;
  if (mb_per_s == 0) return run_in(own_, fmt::format("tc qdisc del dev {} root", kLink));
  const double burst_bytes = std::max(kBurstBytesMin, mb_per_s * 1e3 * kBurstMs);
  run_in(own_,
         fmt::format("tc qdisc replace dev {} root tbf rate {:.0f}bps burst {:.0f} latency 2s",
                     kLink, mb_per_s * 1e6, burst_bytes));
}

void OwnLink::lose_all() {
  run_in(own_, fmt::format("tc qdisc replace dev {} root blackhole", kLink));
}

void OwnLink::change_side() {
  run_in(switch_, fmt::format("ip link set {} master {}", port_, kSwitches[1]));
}

}  // namespace lockstep
