#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// What libFuzzer's own mutations do not reach in a lifetime: inputs that are deep, long or many,
// numbers at the edge of their type, files of holes. A target is linked with mutate_json.cc or
// mutate_bytes.cc, whose LLVMFuzzerCustomMutator() mixes such changes with libFuzzer's.

namespace lockstep::fuzz {

// One change of JSON text, or of lines of it; of what is none, or no longer, as far as values can
// be told in it. Never longer than `most` bytes. The same seed makes the same change.
std::string mutated_json(std::string_view text, size_t most, uint64_t seed);

// One change of bytes that hold lengths, counts and places.
std::string mutated_bytes(std::string_view bytes, size_t most, uint64_t seed);

// Small and quick numbers that follow from a seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1dULL;
  }
  size_t below(size_t limit) { return static_cast<size_t>((next() >> 11) % limit); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  uint64_t state_;
};

// Now and then something huge, mostly not: what is huge takes its time.
size_t drawn_count(Dice* dice);

}  // namespace lockstep::fuzz

// libFuzzer's own; it takes words from the dictionary too.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
