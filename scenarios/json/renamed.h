#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lockstep {

// A value of a scenario whose word another has replaced, and where it stood.
struct RenamedWord {
  std::string pointer;
  std::string old_word;
  std::string new_word;
};

// Puts the present words in place of deprecated ones, in a scenario as it was written (matrix,
// exclude and full included) or as a plan holds it, and returns them in the document's order. Old
// words are taken in the version that renamed them (docs/upgrading.md), and refused in the next.
std::vector<RenamedWord> replace_renamed_words(nlohmann::ordered_json* scenario);

// All of them, with the key of the value as `pointer`.
std::vector<RenamedWord> renamed_words();

}  // namespace lockstep
