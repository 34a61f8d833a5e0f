#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep {

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

}  // namespace lockstep
