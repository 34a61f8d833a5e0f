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
void add_how(CLI::App* verb, VerifyOptions* options);
void add_hosts(CLI::App* verb, HostsOptions* options);

// The verb itself; `action` becomes what it does.
void add_sweep(CLI::App& app, std::function<int()>* action);

}  // namespace lockstep
