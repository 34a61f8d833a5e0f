#include "scenarios/base/phase.h"

namespace lockstep {

const char* to_word(Phase phase) {
  switch (phase) {
    case Phase::rendezvous:
      return "rendezvous";
    case Phase::construction:
      return "construction";
    case Phase::load:
      return "load";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::wait:
      return "wait";
    case Phase::optimizer:
      return "optimizer";
    case Phase::checkpoint:
      return "checkpoint";
    case Phase::teardown:
      return "teardown";
  }
  return "none";  // before the first phase, or a number of a later version
}

std::optional<Phase> phase_from(std::string_view word) {
  for (auto number = static_cast<uint16_t>(Phase::rendezvous);
       number <= static_cast<uint16_t>(Phase::teardown); ++number)
    if (word == to_word(static_cast<Phase>(number))) return static_cast<Phase>(number);
  return std::nullopt;
}

}  // namespace lockstep
