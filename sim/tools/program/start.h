#pragma once

#include <string>
#include <vector>

namespace lockstep {

// How somebody's program is started, whatever is asked of it.
struct ProgramStart {
  std::vector<std::string> command;
  std::string directory = {};  // in which it runs; empty: the caller's
  bool spawns = false;         // it starts its ranks itself
  bool pretends_gpus = false;  // to a program that looks for some
};

}  // namespace lockstep
