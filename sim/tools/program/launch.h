#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/launch/event_loop.h"

namespace lockstep {

// One run of somebody's program: as several processes, or as one that starts its ranks itself.
struct ProgramLaunch {
  std::vector<std::string> command;
  std::string folder;  // exists; gets recordings and rank-R.log
  std::string agent;   // folder for PYTHONPATH
  int64_t world = 1, scale = 1;
  bool spawns = false;  // it starts its ranks itself
  double limit_s = 120;
};

struct ProgramEnd {
  std::string why;  // empty if every process ended with 0 in time, else a sentence
  int signal = 0;   // that interrupted us
};

// Blocks until all have ended, one has failed, the limit is over, or a signal has come; whole
// process groups end with it.
ProgramEnd run_program(const ProgramLaunch& launch, Signals* signals);

}  // namespace lockstep
