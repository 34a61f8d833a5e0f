#pragma once

#include <optional>
#include <string>

#include "sim/launch/executor.h"

namespace lockstep {

// A run directory holds all of a RunOutcome but what only the launcher saw: the ends of processes,
// how long it took, last lines of logs. That stands in ends.json.
std::string ends_path(const std::string& run_dir);

// Writes ends.json; before evidence or records are moved out of `outcome`. plan.json is there, or
// its text is `plan`. Throws std::system_error.
void write_ends(const RunOutcome& outcome, const std::string& run_dir, const std::string& plan);

// All of an outcome that no process wrote: makes the folder (0700) with plan, ends, records and
// evidence, so that read_stored_run() gives it back. Throws std::system_error.
void leave_outcome(const RunOutcome& outcome, const std::string& run_dir);

// The outcome of a run whose directory was kept, on one clock again; without the version of
// LibTorch. Nothing, and `why`, where the folder is no run directory, lacks a file, was left by
// another version of lockstep, or has another plan than the one that was run.
std::optional<RunOutcome> read_stored_run(const std::string& run_dir, std::string* why);

}  // namespace lockstep
