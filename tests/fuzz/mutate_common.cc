#include <iterator>

#include "tests/fuzz/mutate.h"

namespace lockstep::fuzz {

size_t drawn_count(Dice* dice) {
  static constexpr size_t kUsual[] = {2, 3, 17, 99, 100, 101, 255, 256, 257, 1000};
  static constexpr size_t kHuge[] = {5'000, 20'000, 65'537, 100'000, 200'000, 1 << 20};
  return dice->one_in(50) ? dice->one_of(kHuge) : dice->one_of(kUsual);
}

}  // namespace lockstep::fuzz
