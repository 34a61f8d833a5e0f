#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "sim/cli/hosts.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// Options that several verbs share, each set in a group of the help.

// Examples, then the exit codes.
std::string footer(const std::string& examples);
// Which files and runs; `filter`: --filter as well.
void add_selection(CLI::App* verb, Selection* selection, bool filter);
void add_output(CLI::App* verb, VerifyOptions* options);
// --junit and --annotations.
void add_ci(CLI::App* verb, CiOptions* options);
void add_how(CLI::App* verb, VerifyOptions* options);
// --shard; where files are named, --last-failed and --baseline too.
void add_narrowing(CLI::App* verb, VerifyOptions* options, bool files);
void add_hosts(CLI::App* verb, HostsOptions* options);

// Whole verbs; `action` gets what they do.
void add_sweep(CLI::App& app, std::function<int()>* action);
void add_collective(CLI::App& app, std::function<int()>* action);
void add_explore(CLI::App& app, std::function<int()>* action);
// With --task, --zygote or --libraries its arguments go to lockstep-worker untouched (run_cli).
void add_worker(CLI::App& app, std::function<int()>* action);

}  // namespace lockstep
