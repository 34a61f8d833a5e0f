#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// A command line that starts Python.
struct PythonCommand {
  std::string script;      // empty: a module, a text, or standard input
  bool has_agent = false;  // it reads the environment, and so our agent, and has something to run
};

// Nothing where argv starts something else, or says no more than what Python is called with.
std::optional<PythonCommand> python_command(const std::vector<std::string>& argv);

// Its path, by PATH where the word has no slash; empty if there is none that can be executed.
// `directory`: in which it would run, empty: the caller's.
std::string find_program(const std::string& program, const std::string& directory = "");

// Why the command cannot be started at all: no such program on PATH, or no such script.
// `directory`: in which it runs, empty: the caller's.
void check_command(const std::vector<std::string>& argv, InputErrors* errors,
                   const std::string& directory = "");

}  // namespace lockstep
