#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

// The one clock of every duration and deadline: CLOCK_MONOTONIC, the same for all processes of a
// host. Nothing else calls now().
using Clock = std::chrono::steady_clock;

// Absolute point of time after which a blocking call gives up. kNoDeadline never comes.
using Deadline = Clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

inline Deadline deadline_after(std::chrono::milliseconds timeout) { return Clock::now() + timeout; }

// Time left, never negative; about 24 days for kNoDeadline, which every system call accepts.
inline std::chrono::milliseconds time_left(Deadline deadline) {
  constexpr std::chrono::milliseconds kLongest{INT32_MAX};
  if (deadline == kNoDeadline) return kLongest;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (left < std::chrono::milliseconds::zero()) return std::chrono::milliseconds::zero();
  return left < kLongest ? left : kLongest;
}

}  // namespace lockstep
