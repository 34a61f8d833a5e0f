#include "sim/worker/stack_dump.h"

#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

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

}  // namespace

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

}  // namespace lockstep
