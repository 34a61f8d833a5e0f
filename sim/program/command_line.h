#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/tool.h"

namespace lockstep {

// What an option does with the path that it names.
enum class PathUse { none, read, written, folder };
// FILE, and FILE|FOLDER/, in the group Output are written, and so is any --out; all other paths are
// read.
PathUse path_use(const CLI::Option& option);

// What is said of a command line that cannot be understood.

// The verb that was being parsed: errors are about its options.
const CLI::App& innermost(const CLI::App& app);
// "scenario check"; of the program alone empty.
std::string verb_name(const CLI::App& app);
// "lockstep scenario check"
std::string full_name(const CLI::App& app);
// What help() puts before a verb's own name.
std::string parent_name(const CLI::App& app);
// One sentence, with a suggestion where a word is nearly right.
std::string explain(const CLI::App& app, const CLI::ParseError& error);
// The value of an option ("--json") of an unparsed command line; empty: it is not there.
std::string argument(int argc, char** argv, const std::string& option);
// The same of an option that names a file to write errors to; empty also where it is no file's
// name, or where another word names that file: it may be what was to be read.
std::string answer_file(int argc, char** argv, const std::string& option);

// The table of verbs that the core does without (sim/tools). None where CMake was told
// LOCKSTEP_TOOLS=OFF.
const std::vector<Tool>& tools();

// The tool whose scenarios some of these paths are; null: none.
const Tool* tool_of_scenarios(const std::vector<std::string>& paths);

// The parser of the whole program, verb by verb; once parsed, `action` runs what was asked for.
void build_command_line(CLI::App& app, std::function<int()>* action);

// What is wrong with a command line although each of its words is right: options that this
// invocation does not honour (forms.h), files that could not be written, or that two options name.
// `app` has been parsed.
InputErrors command_line_errors(const CLI::App& app);

}  // namespace lockstep
