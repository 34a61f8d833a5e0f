#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// What a rank is doing, from the rendezvous to the end of its process. The numbers are part of the
// format of records (docs/records.md): never reused, only added.
enum class Phase : uint16_t {
  rendezvous = 1,
  construction,
  load,
  forward,
  backward,
  wait,
  optimizer,
  checkpoint,
  teardown
};
const char* to_word(Phase phase);  // "none" for a number of no phase
std::optional<Phase> phase_from(std::string_view word);

}  // namespace lockstep
