#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "sim/cli/verbs.h"

namespace lockstep {

void add_analyze(CLI::App& app, std::function<int()>* action);

// Of what scripts/lockstep_record.py recorded of a run in Python.
int analyze_recording(const AnalyzeOptions& options);

}  // namespace lockstep
