#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/run_faults.h"
#include "sim/tools/program/run_result.h"
#include "sim/tools/program/run_watch.h"
#include "sim/tools/program/start.h"

namespace lockstep {

// How a program is run with faults: what `run -- COMMAND` and a scenario with "program" can ask
// for.
struct ProgramRunAsked {
  ProgramStart start;
  int64_t world = 2;
  std::vector<ProgramFault> faults;
  double timeout_scale = 1;  // of the time-outs of the program's groups
  ProgramWatch watch;
  std::vector<std::string> variables = {};  // more of them: "NAME=value"
};

struct RanProgram {
  ProgramRun run;
  ProgramRunResult result;
};

// Blocks. `folder`: for what the ranks record; it exists, with nothing of another run in it.
RanProgram run_with_faults(const ProgramRunAsked& asked, const std::string& folder,
                           Signals* signals);

// The timeline of --html; nothing of a run that could not be started.
std::optional<std::string> timeline_page(const RanProgram& ran);

}  // namespace lockstep
