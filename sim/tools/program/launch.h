#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Empty if every process ended with 0 in time, else a sentence. Whole process groups end with it.
std::string run_program(const ProgramLaunch& launch);

}  // namespace lockstep
