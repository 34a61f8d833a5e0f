#include "sim/launch/process_state.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <sys/syscall.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "scenarios/base/file.h"
#include "sim/launch/files.h"
#include "sim/launch/protocol.h"
#include "sim/record/core_wait.h"

namespace lockstep {
namespace {

// In which a rank may be found to wait.
constexpr std::array<std::pair<long, const char*>, 16> kCalls = {{
    {SYS_futex, "futex"},
    {SYS_ppoll, "ppoll"},
    {SYS_epoll_pwait, "epoll_wait"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_read, "read"},
    {SYS_readv, "readv"},
    {SYS_write, "write"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_connect, "connect"},
    {SYS_pselect6, "select"},
    {SYS_rt_sigsuspend, "sigsuspend"},
    {SYS_wait4, "wait"},
    {SYS_fsync, "fsync"},
}};

std::string call_name(long number) {
#ifdef SYS_poll  // absent on newer architectures
  if (number == SYS_poll) return "poll";
  if (number == SYS_epoll_wait) return "epoll_wait";
  if (number == SYS_pause) return "pause";
#endif
  for (const auto& [known, name] : kCalls)
    if (known == number) return name;
  return fmt::format("call {}", number);
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

// "/lib/libc.so.6(+0x3bfd0) [0x7f..]" or "worker(_ZN8lockstep4Pass4stepEl+0x5f) [0x55..]".
std::string frame_of(const std::string& line) {
  const size_t open = line.rfind('('), close = line.rfind(')');
  if (open == line.npos || close == line.npos || close < open) return line;
  const std::string inside = line.substr(open + 1, close - open - 1);
  const size_t plus = inside.rfind('+');
  if (plus != inside.npos && plus > 0)
    return demangled(inside.substr(0, plus)) + inside.substr(plus);
  const size_t slash = line.rfind('/', open);
  const size_t begin = slash == line.npos ? 0 : slash + 1;
  return line.substr(begin, open - begin) + inside;
}

}  // namespace

ProcessState read_process_state(pid_t pid) {
  const std::string proc = fmt::format("/proc/{}/", pid);
  ProcessState state;
  const std::string stat = read_file(proc + "stat");  // "12 (name) S ...", a name may hold ")"
  const size_t name_end = stat.rfind(')');
  if (name_end != stat.npos && name_end + 2 < stat.size()) state.state = stat[name_end + 2];
  const std::string call = read_file(proc + "syscall");  // "running", "-1 ...", "202 0x..."
  char* end = nullptr;
  const long number = std::strtol(call.c_str(), &end, 10);
  if (end != call.c_str() && number >= 0) state.syscall = call_name(number);
  state.wchan = read_file(proc + "wchan");
  if (state.wchan == "0") state.wchan.clear();
  state.core_wait_ns = core_wait_of_main_thread(pid);
  return state;
}

bool is_stopped(const ProcessState& state) { return state.state == 'T' || state.state == 't'; }

bool catches_signal(pid_t pid, int signal) {
  std::istringstream status(read_file(fmt::format("/proc/{}/status", pid)));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:"))
      return (std::strtoull(line.c_str() + 7, nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

std::vector<std::string> read_stack(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;  // a handler writes at most some kB
  std::istringstream text(read_foreign_file(path, kMostBytes).value_or(""));
  std::vector<std::string> frames;
  for (std::string line; std::getline(text, line);) {
    if (line == kStackEnd) return frames;
    frames.push_back(frame_of(line));
  }
  return {};
}

}  // namespace lockstep
