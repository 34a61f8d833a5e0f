#pragma once

#include <functional>

#include "sim/cli/command_line_names.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// The command of the verb that reads what lies at a path; empty where that is none but this one.
using OtherCommand = std::function<std::string(const std::string& path)>;
void add_analyze(CLI::App& app, std::function<int()>* action, const OtherCommand& other);

// Of what scripts/lockstep_record.py recorded of a run in Python.
int analyze_recording(const AnalyzeOptions& options);

}  // namespace lockstep
