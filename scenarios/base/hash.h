#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// XXH3 of bytes; chain is the hash of what came before (0 at the start).
uint64_t hash64(const void* data, size_t bytes, uint64_t chain = 0);

// Derives an independent generator's seed: the same for the same names, on every machine.
uint64_t substream_seed(uint64_t seed, std::string_view name, uint64_t index = 0);

// A small generator (Steele, Lea, Flood 2014): the same numbers on every machine.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

// Running XXH3-128 over several pieces; hex() gives 32 lower-case digits.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;
  void update(const void* data, size_t bytes);
  void update(std::string_view text);      // its length, then its bytes
  std::array<uint64_t, 2> digest() const;  // low, high

 private:
  void* state_;
};
std::string hex(const std::array<uint64_t, 2>& digest);

}  // namespace lockstep
