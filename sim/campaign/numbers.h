#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/base/hash.h"

namespace lockstep {

// Numbers in the order in which they are asked for, from a seed alone.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(substream_seed(seed_, "campaign", next_++) %
                                static_cast<uint64_t>(limit));
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  // True once in `times`.
  bool once_in(int64_t times) { return below(times) == 0; }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  const uint64_t seed_;
  uint64_t next_ = 0;
};

}  // namespace lockstep
