#pragma once

#include <cstdint>
#include <cstdio>

#include "scenarios/base/clock.h"

namespace lockstep {

// Time for tests that bound it: that in which something on this machine was ready to run and had no
// core (/proc/pressure/cpu) does not count. A bound on it is as strict as it says on a quiet
// machine, and holds on any other.
class QuietTime {
 public:
  double ms() const {
    const auto passed = static_cast<double>(now_ns() - began_ns_) * 1e-6;
    const double quiet = passed - contended_ms();
    return quiet > 0 ? quiet : 0;
  }
  // What of the time since the begin does not count.
  double contended_ms() const { return (some_us() - began_us_) * 1e-3; }

 private:
  // "some avg10=57.90 avg60=51.26 avg300=25.45 total=104115636"; 0 where the kernel does not tell.
  static double some_us() {
    std::FILE* file = std::fopen("/proc/pressure/cpu", "re");
    if (file == nullptr) return 0;
    double total = 0;
    const bool known =
        std::fscanf(file, "some avg10=%*f avg60=%*f avg300=%*f total=%lf", &total) == 1;
    std::fclose(file);
    return known ? total : 0;
  }

  const int64_t began_ns_ = now_ns();
  const double began_us_ = some_us();
};

}  // namespace lockstep
