#include "scenarios/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace lockstep {

uint64_t hash64(const void* data, size_t bytes, uint64_t chain) {
  return XXH3_64bits_withSeed(data, bytes, chain);
}

uint64_t substream_seed(uint64_t seed, std::string_view name, uint64_t index) {
  const uint64_t named = hash64(name.data(), name.size(), seed);
  return hash64(&index, sizeof index, named);
}

Hash128::Hash128() : state_(XXH3_createState()) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Hash128::~Hash128() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Hash128::update(const void* data, size_t bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data, bytes);
}

void Hash128::update(std::string_view text) {
  const uint64_t length = text.size();
  update(&length, sizeof length);
  update(text.data(), text.size());
}

std::array<uint64_t, 2> Hash128::digest() const {
  const XXH128_hash_t h = XXH3_128bits_digest(static_cast<XXH3_state_t*>(state_));
  return {h.low64, h.high64};
}

std::string hex(const std::array<uint64_t, 2>& digest) {
  return fmt::format("{:016x}{:016x}", digest[1], digest[0]);
}

uint64_t SplitMix64::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace lockstep
