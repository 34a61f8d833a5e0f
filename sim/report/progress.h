#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/judge/judge.h"

namespace lockstep {

// Progress on standard error: on a terminal one line that moves, with what failed scrolling above
// it; elsewhere a plain line every five seconds at most, so that short runs say nothing.
class Progress {
 public:
  // What is to be run under one scenario name. cost: of a run, relative to others: processes take
  // some 30 times as long as ranks that are threads, and the time left must not jump by that.
  struct Group {
    int64_t runs = 0;
    int64_t cost = 1;
  };
  static constexpr int64_t kProcessCost = 30;

  // groups: by scenario name. `terminal`: standard error is one. Silent if quiet.
  Progress(std::map<std::string, Group> groups, bool terminal, bool quiet);
  ~Progress();  // takes the moving line away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void done(const RunResult& run);

  // "mlp_matrix 118/250  39 %  16 s left  0 failed", of the cost of all runs; public for tests.
  std::string line(const std::string& name, std::chrono::nanoseconds elapsed) const;

 private:
  std::map<std::string, Group> groups_;
  std::map<std::string, int64_t> done_;
  int64_t cost_ = 0, cost_done_ = 0, failed_ = 0;
  bool terminal_, quiet_;
  bool shown_ = false;
  Deadline start_, last_;
};

}  // namespace lockstep
