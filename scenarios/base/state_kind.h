#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// What of a step is compared. The order is that in which a first divergence is looked for
// (docs/verdicts.md); the numbers are part of the format of records (docs/records.md).
enum class StateKind : uint8_t { gradient, buffer, parameter, optimizer_state };
inline constexpr size_t kStateKinds = 4;
const char* to_word(StateKind kind);  // "gradient", "buffer", "parameter", "optimizer_state"
std::optional<StateKind> state_kind_from(std::string_view word);
const char* in_words(StateKind kind);  // "optimizer state"

}  // namespace lockstep
