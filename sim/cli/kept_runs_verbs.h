#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

// The verbs that look at runs which are over.
void add_analyze(CLI::App& app, std::function<int()>* action);
void add_whatif(CLI::App& app, std::function<int()>* action);

}  // namespace lockstep
