#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

namespace lockstep::fuzz {
namespace {

// What a length, a count or a place is wrong with.
uint64_t an_extreme(Dice* dice, size_t size) {
  const uint64_t near[] = {size - 1, size, size + 1, size / 2, 8 * size, size << 20};
  static constexpr uint64_t kFar[] = {0,
                                      1,
                                      2,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0x7fff,
                                      0x8000,
                                      0xffff,
                                      0x10000,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x100000000,
                                      uint64_t{1} << 40,
                                      uint64_t{1} << 53,
                                      ~uint64_t{0} >> 1,
                                      uint64_t{1} << 63,
                                      ~uint64_t{0},
                                      ~uint64_t{0} - 7};
  return dice->one_in(3) ? dice->one_of(near) : dice->one_of(kFar);
}

void put_number(std::string* bytes, Dice* dice) {
  static constexpr size_t kWidths[] = {1, 2, 4, 8};
  const size_t width = std::min(dice->one_of(kWidths), bytes->size());
  if (width == 0) return;
  size_t at = dice->below(bytes->size() - width + 1);
  if (dice->one_in(2)) at -= at % width;  // fields are aligned, mostly
  uint64_t value = an_extreme(dice, bytes->size());
  if (dice->one_in(4)) {  // a little more or less than it was
    value = 0;
    std::memcpy(&value, bytes->data() + at, width);
    value += dice->below(33) - 16;
  }
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  if (dice->one_in(4)) std::reverse(raw, raw + width);
  bytes->replace(at, width, raw, width);
}

void move_block(std::string* bytes, Dice* dice, size_t most) {
  if (bytes->empty()) return;
  const size_t from = dice->below(bytes->size());
  const size_t length = std::min(bytes->size() - from, 1 + dice->below(64));
  const std::string block = bytes->substr(from, length);
  const size_t to = dice->below(bytes->size());
  if (dice->one_in(3)) {
    bytes->erase(from, length);
  } else if (dice->one_in(2)) {
    bytes->replace(to, std::min(length, bytes->size() - to), block);
  } else {
    const size_t times = std::min(dice->one_in(4) ? drawn_count(dice) : 1, most / (length + 1));
    std::string many;
    for (size_t i = 0; i < times; ++i) many += block;
    bytes->insert(to, many);
  }
}

void grow(std::string* bytes, Dice* dice, size_t most) {
  const size_t room = most > bytes->size() ? most - bytes->size() : 0;
  if (dice->one_in(2))
    bytes->append(std::min(room, drawn_count(dice)), static_cast<char>(dice->below(2) * 0xff));
  else
    *bytes += growth(uint64_t{1} << (10 + dice->below(26)));
}

}  // namespace

std::string mutated_bytes(std::string_view given, size_t most, uint64_t seed) {
  Dice dice(seed);
  std::string bytes(given);
  switch (dice.below(8)) {
    case 0:
      bytes.resize(dice.below(bytes.size() + 1));
      break;
    case 1:
      grow(&bytes, &dice, most);
      break;
    case 2:
    case 3:
      move_block(&bytes, &dice, most);
      break;
    default:
      put_number(&bytes, &dice);
  }
  return bytes.substr(0, most);
}

}  // namespace lockstep::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  lockstep::fuzz::Dice dice(seed);
  if (!dice.one_in(2)) return LLVMFuzzerMutate(data, size, most);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string out = lockstep::fuzz::mutated_bytes(bytes, most, dice.next());
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
