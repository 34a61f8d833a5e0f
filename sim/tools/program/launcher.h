#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What a launcher (torchrun, accelerate launch) would start as each rank, since lockstep starts the
// ranks itself: as many as a verdict needs, one device too, and forked.
struct OfLauncher {
  std::vector<std::string> command;    // of one rank
  std::optional<int64_t> world;        // that the launcher was asked for
  std::vector<std::string> variables;  // "NAME=value" that it would give the ranks
  std::vector<std::string> of_env;     // of an `env NAME=value` before it, which come first
  std::string left_out;                // the launcher and its options, as they were given
};

// Nothing where the command starts with no launcher. One that is known by name and cannot be left
// out is an error with what to do: of several hosts, of options that would change the ranks.
std::optional<OfLauncher> of_launcher(const std::vector<std::string>& argv, InputErrors* errors);

// Puts the rank's command in place of the launcher's, with a line to stderr; its variables are set
// in this process. The ranks that it was asked for, if it was. `spawns`: it is to start them.
std::optional<int64_t> leave_out_launcher(std::vector<std::string>* command, bool spawns,
                                          InputErrors* errors);

}  // namespace lockstep
