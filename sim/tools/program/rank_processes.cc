#include "sim/tools/program/rank_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "sim/launch/process_stat.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

constexpr int kGenerationsMost = 16;

bool has_ended(const ProgramChild& child) {
  pollfd end{child.process.pidfd.get(), POLLIN, 0};
  return !child.process.pidfd.valid() || (::poll(&end, 1, 0) == 1 && end.revents != 0);
}

}  // namespace

RankProcesses::~RankProcesses() {
  for (const ProgramChild& rank : spawned_)  // it may have left the program's process group
    if (!rank.ended) send_signal(rank.process.pidfd, SIGKILL);
}

void RankProcesses::start(const ProgramLaunch& launch) {
  spawns_ = launch.start.spawns;
  world_ = launch.world;
  folder_ = launch.folder;
  own_.start(launch);
}

const std::vector<ProgramChild>& RankProcesses::ranks() const {
  return spawns_ ? spawned_ : own_.children();
}

std::vector<size_t> RankProcesses::look() {
  std::vector<size_t> own = own_.look();
  if (!spawns_) return own;
  for (int64_t rank = 0; rank < world_; ++rank) find(rank);
  std::vector<size_t> fresh;
  for (size_t i = 0; i < spawned_.size(); ++i) {
    ProgramChild& rank = spawned_[i];
    if (rank.ended || !has_ended(rank) || !take_end(&rank)) continue;
    rank.ended = true;
    fresh.push_back(i);
  }
  return fresh;
}

void RankProcesses::find(int64_t rank) {
  const auto is_it = [rank](const ProgramChild& known) { return known.rank == rank; };
  if (std::any_of(spawned_.begin(), spawned_.end(), is_it)) return;
  const auto told = read_rank_process(folder_, rank);
  note_unread(told);
  const auto pid = told.value_or(std::nullopt);
  if (!pid || !descends(*pid)) return;
  ProgramChild child;
  child.rank = rank;
  child.process.pid = *pid;
  child.process.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.process.pid, 0)));
  spawned_.push_back(std::move(child));
}

// One that is gone already has no parents any more: its records and the program tell of it.
bool RankProcesses::descends(pid_t pid) {
  const pid_t program = own_.children()[0].process.pid;
  for (int i = 0; i < kGenerationsMost && pid > 1; ++i) {
    const ProcessStat stat = read_process_stat(pid);
    if (i == 0 && stat.state == 0) return told_of(pid).ended;
    if (stat.parent == program) return true;
    pid = stat.parent;
  }
  return false;
}

// Read where a rank is gone alone; the file has two lines a rank.
ChildEnd RankProcesses::told_of(pid_t pid) {
  const auto told = read_child_end(folder_, pid);
  note_unread(told);
  return told.value_or({});
}

bool RankProcesses::take_end(ProgramChild* rank) {
  const ChildEnd told = told_of(rank->process.pid);
  const ProcessStat stat = read_process_stat(rank->process.pid);
  if (told.ended) {
    rank->signal = told.signal;
    rank->exit_code = told.exit_code;
  } else if (stat.state == 'Z' && stat.status >= 0) {
    rank->signal = WIFSIGNALED(stat.status) ? WTERMSIG(stat.status) : 0;
    rank->exit_code = rank->signal != 0 ? -1 : WEXITSTATUS(stat.status);
  } else if (at_work()) {
    return false;
  }
  rank->by_program = told.sent != 0 && rank->signal == told.sent;
  return true;
}

}  // namespace lockstep
