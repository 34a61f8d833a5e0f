#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

// Says of a text whether any of several words stands in it, in much less than a look at each
// character (Wu and Manber, "A fast algorithm for multi-pattern searching", 1994, with pairs of
// characters): most lines of a log hold none. The words must outlive it; each has two characters
// or more.
class Needles {
 public:
  explicit Needles(std::vector<std::string_view> words);

  bool any_in(std::string_view text) const;

 private:
  static size_t pair(const char* at) {
    return static_cast<uint8_t>(at[0]) | static_cast<size_t>(static_cast<uint8_t>(at[1])) << 8;
  }

  size_t shortest_;
  std::vector<std::string_view> words_;  // by the pair that ends their first `shortest_` characters
  std::array<uint8_t, 65536> skip_;      // how far on the next candidate may be, by the last pair
};

}  // namespace lockstep
