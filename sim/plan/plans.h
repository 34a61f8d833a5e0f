#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using AxisValues = std::vector<std::pair<std::string, std::string>>;  // pointer -> JSON text

// "world_size=3 reducer=bucketed bucket_cap_mb=1": the axes of a run as people read them. The last
// word of a pointer names it, `kind` takes the part's name.
std::string label_of(const AxisValues& set);

// The layer of a parameter: "fc2" of "fc2.weight".
std::string layer_name(const std::string& parameter);

// A word that a POSIX shell reads as this text: quoted only where it must be.
std::string shell_word(const std::string& text);

// The command that runs exactly one combination again: the user's own --set arguments first, then
// every axis that they do not pin already. `further`: other words of the user's that belong to it.
std::string again_command(const std::string& file, const std::vector<std::string>& sets,
                          const AxisValues& axes, uint64_t seed,
                          const std::vector<std::string>& further = {},
                          const char* verb = "verify");

}  // namespace lockstep
