#pragma once

#include "sim/tools/program/run_result.h"

namespace lockstep {

// Of a run that failed: who and what, as the judge of our own runs finds it, put right by what
// holds of programs alone: mistakes that all ranks make alike, groups of some of the ranks, and
// hangs of which nobody can tell who keeps the others waiting. Sets `failure`, or `why` nobody is
// named.
void take_failure(const ProgramRun& run, ProgramRunResult* result);

// "ValueError" of "ValueError: bad"
std::string type_of_error(const std::string& error);

// Is it another collective? How much each rank gives must be the same of an all_reduce alone.
bool is_other_call(const Event& a, const Event& b);

}  // namespace lockstep
