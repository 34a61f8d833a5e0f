#pragma once

#include <vector>

#include "sim/cli/verbs.h"
#include "sim/tools/program/scenario.h"

namespace lockstep {

// What verbs of the core do with scenarios of programs.

// All errors of all files, or all files (those of which nothing is left included).
Expected<std::vector<ProgramScenarioFile>> select_programs(const Selection& selection);

// A command is code, as a TorchScript model is: without --trust-programs none is run.
InputErrors untrusted_programs(const Selection& selection,
                               const std::vector<ProgramScenarioFile>& files);

// verify takes all of them, and does with each what it says; run those with "faults" alone.
int execute_program_scenarios(const VerifyOptions& options);
int check_program_scenarios(const Selection& selection);
int list_program_scenarios(const Selection& selection);
int sweep_program_scenario(const SweepOptions& options);  // sweep_verb.cc

}  // namespace lockstep
