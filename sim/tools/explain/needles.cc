#include "sim/tools/explain/needles.h"

#include <algorithm>
#include <utility>

#include "scenarios/base/error.h"

namespace lockstep {

Needles::Needles(std::vector<std::string_view> words) : words_(std::move(words)) {
  LOCKSTEP_CHECK(!words_.empty(), "words to look for");
  shortest_ = 255;
  for (const std::string_view word : words_) shortest_ = std::min(shortest_, word.size());
  LOCKSTEP_CHECK(shortest_ >= 2, "a word of two characters or more");
  skip_.fill(static_cast<uint8_t>(shortest_ - 1));
  for (const std::string_view word : words_)
    for (size_t at = 0; at + 2 <= shortest_; ++at) {
      uint8_t& skip = skip_[pair(word.data() + at)];
      skip = std::min(skip, static_cast<uint8_t>(shortest_ - 2 - at));
    }
  const auto last_pair = [this](std::string_view word) {
    return pair(word.data() + shortest_ - 2);
  };
  std::sort(words_.begin(), words_.end(),
            [&](auto a, auto b) { return last_pair(a) < last_pair(b); });
}

bool Needles::any_in(std::string_view text) const {
  for (size_t end = shortest_; end <= text.size();) {
    const size_t last = pair(text.data() + end - 2);
    if (skip_[last] > 0) {
      end += skip_[last];
      continue;
    }
    auto word = std::lower_bound(words_.begin(), words_.end(), last, [this](auto a, size_t b) {
      return pair(a.data() + shortest_ - 2) < b;
    });
    for (; word != words_.end() && pair(word->data() + shortest_ - 2) == last; ++word)
      if (text.substr(end - shortest_).starts_with(*word)) return true;
    ++end;
  }
  return false;
}

}  // namespace lockstep
