#include <regex>

#include "reducer/hierarchical/hierarchical.h"

namespace lockstep {
namespace {

// Calls `change` with every match; what is between stays.
template <class Change>
std::string replaced(const std::string& text, const std::regex& what, const Change& change) {
  std::string result;
  size_t at = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), what), end; match != end; ++match) {
    const auto begin = static_cast<size_t>(match->position());
    result += text.substr(at, begin - at) + change(match->str());
    at = begin + static_cast<size_t>(match->length());
  }
  return result + text.substr(at);
}

}  // namespace

std::string with_ranks_renamed(const std::string& text, int64_t first, int64_t stride) {
  static const std::regex lists(R"(\branks? [0-9]{1,6}((, | and |, and )[0-9]{1,6})*)");
  static const std::regex numbers("[0-9]+");
  return replaced(text, lists, [&](const std::string& list) {
    return replaced(list, numbers, [&](const std::string& number) {
      return std::to_string(first + std::stoll(number) * stride);
    });
  });
}

}  // namespace lockstep
