#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "scenarios/base/error.h"

namespace lockstep {

// The parser of the whole program, verb by verb; once parsed, `action` runs what was asked for.
void build_command_line(CLI::App& app, std::function<int()>* action);

// What is wrong with a command line although each of its words is right: options that this
// invocation does not honour (forms.h), files that could not be written, or that two options name.
// `app` has been parsed.
InputErrors command_line_errors(const CLI::App& app);

}  // namespace lockstep
