#pragma once

#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// A folder for temporary files, gone with everything in it, however this ends; empty `path`: there
// could be none.
struct ProgramScratch {
  ProgramScratch();
  ~ProgramScratch();
  ProgramScratch(const ProgramScratch&) = delete;
  ProgramScratch& operator=(const ProgramScratch&) = delete;
  std::string path;
};

// What PYTHONPATH gets: of LOCKSTEP_PYTHON, or of the source tree that this program was built in,
// or as CMake or pip install it; nowhere else, for it is code that will run. Empty: nowhere.
std::string program_agent_folder();
// The variable, with the caller's own path behind the agent's folder.
std::string program_python_path(const std::string& agent);

// Why no program can be run from here: no agent, or no folder for temporary files.
void check_places(const ProgramScratch& scratch, InputErrors* errors);

}  // namespace lockstep
