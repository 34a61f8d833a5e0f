#include "scenarios/base/state_kind.h"

#include "scenarios/base/error.h"

namespace lockstep {

const char* to_word(StateKind kind) {
  switch (kind) {
    case StateKind::gradient:
      return "gradient";
    case StateKind::buffer:
      return "buffer";
    case StateKind::parameter:
      return "parameter";
    case StateKind::optimizer_state:
      return "optimizer_state";
  }
  LOCKSTEP_CHECK(false, "no such kind of state");
}

std::optional<StateKind> state_kind_from(std::string_view word) {
  for (size_t i = 0; i < kStateKinds; ++i)
    if (word == to_word(static_cast<StateKind>(i))) return static_cast<StateKind>(i);
  return std::nullopt;
}

const char* in_words(StateKind kind) {
  return kind == StateKind::optimizer_state ? "optimizer state" : to_word(kind);
}

}  // namespace lockstep
