#include "sim/tools/program/zygote.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "sim/launch/run_files.h"
#include "sim/tools/program/command.h"
#include "sim/tools/program/places.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kForkPatience{60};  // of a process that waits for nothing but us
constexpr int kEndPatienceMs = 2000;
constexpr size_t kReasonMost = 300;

bool draws_hashes() {
  const char* seed = ::getenv("PYTHONHASHSEED");
  return seed == nullptr || *seed == '\0' || std::string_view(seed) == "random";
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

// Readable, or closed.
bool wait_for(const Channel& channel, Clock::time_point deadline, int other = -1) {
  pollfd ends[] = {{channel.fd(), POLLIN, 0}, {other, POLLIN, 0}};
  int rc = 0;
  do {
    rc = ::poll(ends, 2, milliseconds_until(deadline));
  } while (rc < 0 && errno == EINTR);
  return ends[0].revents != 0;
}

// Of a rank that says its number; nothing unless it is a child of ours and the first of a group.
Spawned child_of(const std::string& text) {
  Spawned child;
  siginfo_t info{};
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 1) return child;
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return child;
  if (::getpgid(pid) != pid) return child;
  child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (child.pidfd.valid()) child.pid = pid;
  return child;
}

}  // namespace

ProgramZygotes::ProgramZygotes(const std::vector<std::string>& command, const std::string& agent,
                               const std::string& folder, const std::string& directory) {
  const auto python = python_command(command);
  if (!python || !python->has_agent) return;
  // A rank's parent ends at once; then we are its parent.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return;
  for (int i = 0; i < (draws_hashes() ? 2 : 1); ++i) {
    auto [ours, theirs] = Channel::pair();
    Zygote& zygote = zygotes_.emplace_back();
    zygote.channel = std::move(ours);
    zygote.log = fmt::format("{}/zygote-{}.log", folder, i);
    try {
      zygote.process = spawn(
          {.argv = command,
           .log = zygote.log,
           .passed = theirs.fd(),
           .variables = {program_python_path(agent), "PYTHONDONTWRITEBYTECODE=1",
                         "LOCKSTEP_PROGRAM_DIR", fmt::format("LOCKSTEP_ZYGOTE={}", kPassedFd)},
           .directory = directory});
    } catch (const std::system_error&) {  // a run says why its command cannot be started
      end_all();
      return;
    }
  }
}

ProgramZygotes::~ProgramZygotes() { end_all(); }

// They remove temporary files of their own when the channel closes.
void ProgramZygotes::end_all() {
  for (Zygote& zygote : zygotes_) zygote.channel.close();
  for (const Zygote& zygote : zygotes_) {
    if (zygote.process.pid <= 0) continue;
    pollfd end{zygote.process.pidfd.get(), POLLIN, 0};
    if (zygote.ready) ::poll(&end, 1, kEndPatienceMs);
    ::killpg(zygote.process.pid, SIGKILL);
    kill_and_reap(zygote.process);
  }
  zygotes_.clear();
}

void ProgramZygotes::give_up(std::string why) {
  why_fresh_ = std::move(why);
  end_all();
}

// False if it is gone or says that it is not fit; then all are given up.
bool ProgramZygotes::receive(Zygote* zygote, Channel::Message* message) {
  const Channel::Got got = zygote->channel.receive(message);
  if (got == Channel::Got::nothing) return true;
  if (got == Channel::Got::message && message->size() == 2 && message->at(0) != "unfit")
    return true;
  std::string why = got == Channel::Got::message && message->size() == 2
                        ? message->at(1)
                        : "Python ended while it imported torch: " + log_tail(zygote->log, 1);
  give_up(why.substr(0, kReasonMost));
  return false;
}

void ProgramZygotes::wait(Deadline until, const Signals& signals) {
  for (Zygote& zygote : zygotes_) {
    if (zygote.ready) continue;
    Channel::Message message;
    if (!wait_for(zygote.channel, until, signals.fd())) {
      if (Clock::now() >= until) give_up("torch was not imported in time (--limit)");
      return;
    }
    if (!receive(&zygote, &message)) return;
    zygote.ready = !message.empty() && message[0] == "ready";
  }
}

Spawned ProgramZygotes::start(int64_t rank, const SpawnOptions& options) {
  if (zygotes_.empty()) return spawn(options);
  Zygote& zygote = zygotes_[static_cast<size_t>(rank) % zygotes_.size()];
  Channel::Message request = {std::to_string(::getpid()), options.log};
  request.insert(request.end(), options.variables.begin(), options.variables.end());
  Channel::Message reply;
  if (zygote.ready && zygote.channel.send(request) &&
      wait_for(zygote.channel, Clock::now() + kForkPatience) && receive(&zygote, &reply) &&
      reply.size() == 2) {
    Spawned child = child_of(reply[1]);
    if (child.pid > 0) return child;
  }
  if (why_fresh_.empty()) give_up(fmt::format("rank {} could not be forked", rank));
  return spawn(options);
}

}  // namespace lockstep
