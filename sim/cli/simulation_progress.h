#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/report/moving_line.h"

namespace lockstep {

// What is under way, on one moving line, of work that takes longer than a second.
class SimulationProgress {
 public:
  explicit SimulationProgress(bool quiet) : line_(!quiet && can_move(STDERR_FILENO)) {}

  // Before each part of it.
  void next(const std::string& what) {
    what_ = what;
    show(what);
  }
  // Within the part.
  void step(int64_t done, int64_t of) {
    if (now_ns() - shown_ns_ > kEveryNs)
      show(what_ + ", step " + std::to_string(done) + " of " + std::to_string(of));
  }

 private:
  static constexpr int64_t kShownAfterNs = 1'000'000'000, kEveryNs = 100'000'000;

  void show(const std::string& text) {
    shown_ns_ = now_ns();
    if (shown_ns_ - begin_ns_ > kShownAfterNs) line_.show(text);
  }

  MovingLine line_;
  const int64_t begin_ns_ = now_ns();
  int64_t shown_ns_ = begin_ns_;
  std::string what_;
};

}  // namespace lockstep
