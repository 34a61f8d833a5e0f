#include "sim/des/random.h"

#include <algorithm>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

constexpr uint32_t kMultiplier = 0xD256D193, kWeyl = 0x9E3779B9;
constexpr int kRounds = 10;

RankStream::Range joined(RankStream::Range a, RankStream::Range b) {
  return {std::min(a.least, b.least), std::max(a.largest, b.largest)};
}

RankStream::Range range_of_blocks(uint32_t begin, uint32_t end, uint32_t high, uint32_t key) {
  RankStream::Range range{UINT32_MAX, 0};
  for (uint32_t block = begin; block < end; ++block) {
    const PhiloxBlock drawn = philox2x32(block, high, key);
    range =
        joined(range, {std::min(drawn.first, drawn.second), std::max(drawn.first, drawn.second)});
  }
  return range;
}

#if defined(__x86_64__)
// Four blocks to a vector, four vectors at once so that their multiplications overlap. A lane of 64
// bits holds one 32-bit word; what stands in its upper half is never looked at until the end.
__attribute__((target("avx2"))) RankStream::Range range_of_blocks_avx2(uint32_t begin, uint32_t end,
                                                                       uint32_t high,
                                                                       uint32_t key) {
  constexpr uint32_t kVectors = 4, kAtOnce = 4 * kVectors;
  const __m256i multiplier = _mm256_set1_epi64x(kMultiplier);
  const __m256i low_half = _mm256_set1_epi64x(UINT32_MAX);
  __m256i least = low_half, largest = _mm256_setzero_si256();
  uint32_t block = begin;
  for (; end - block >= kAtOnce; block += kAtOnce) {
    __m256i low[kVectors], other[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v) {
      low[v] = _mm256_add_epi64(_mm256_set1_epi64x(block + 4 * v), _mm256_set_epi64x(3, 2, 1, 0));
      other[v] = _mm256_set1_epi64x(high);
    }
    uint32_t round_key = key;
    for (int round = 0; round < kRounds; ++round, round_key += kWeyl) {
      const __m256i mixed = _mm256_set1_epi64x(round_key);
      for (uint32_t v = 0; v < kVectors; ++v) {
        const __m256i product = _mm256_mul_epu32(low[v], multiplier);
        low[v] =
            _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product, 32), mixed), other[v]);
        other[v] = product;
      }
    }
    for (uint32_t v = 0; v < kVectors; ++v)
      for (const __m256i word :
           {_mm256_and_si256(low[v], low_half), _mm256_and_si256(other[v], low_half)}) {
        least = _mm256_min_epu32(least, word);
        largest = _mm256_max_epu32(largest, word);
      }
  }
  alignas(32) uint64_t low_words[4], high_words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(low_words), least);
  _mm256_store_si256(reinterpret_cast<__m256i*>(high_words), largest);
  RankStream::Range range = range_of_blocks(block, end, high, key);
  for (int lane = 0; lane < 4; ++lane)
    range = joined(
        range, {static_cast<uint32_t>(low_words[lane]), static_cast<uint32_t>(high_words[lane])});
  return range;
}
#endif

}  // namespace

PhiloxBlock philox2x32(uint32_t counter_low, uint32_t counter_high, uint32_t key) {
  for (int round = 0; round < kRounds; ++round, key += kWeyl) {
    const uint64_t product = uint64_t{kMultiplier} * counter_low;
    counter_low = static_cast<uint32_t>(product >> 32) ^ key ^ counter_high;
    counter_high = static_cast<uint32_t>(product);
  }
  return {counter_low, counter_high};
}

RankStream::RankStream(uint64_t seed, int64_t pass, int64_t bucket) {
  const uint64_t of_step = substream_seed(seed, "step", static_cast<uint64_t>(pass));
  const uint64_t place = substream_seed(of_step, "bucket", static_cast<uint64_t>(bucket + 1));
  high_ = static_cast<uint32_t>(place >> 32);
  key_ = static_cast<uint32_t>(place);
}

uint32_t RankStream::at(int64_t rank) const {
  const PhiloxBlock block = philox2x32(static_cast<uint32_t>(rank >> 1), high_, key_);
  return (rank & 1) != 0 ? block.second : block.first;
}

RankStream::Range RankStream::range(int64_t begin, int64_t end) const {
  LOCKSTEP_CHECK(begin >= 0 && begin < end, "a range without ranks");
  Range range{UINT32_MAX, 0};
  const auto add = [&](int64_t rank) {
    const uint32_t bits = at(rank);
    range = joined(range, {bits, bits});
  };
  if ((begin & 1) != 0) add(begin++);
  if (begin < end && (end & 1) != 0) add(--end);
  if (begin == end) return range;
  const auto first = static_cast<uint32_t>(begin >> 1), last = static_cast<uint32_t>(end >> 1);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0)
    return joined(range, range_of_blocks_avx2(first, last, high_, key_));
#endif
  return joined(range, range_of_blocks(first, last, high_, key_));
}

double RankStream::of_all() const {
  // Counters of ranks stay below 2^31.
  const PhiloxBlock block = philox2x32(UINT32_MAX, high_, key_);
  const uint64_t bits = (uint64_t{block.first} << 32) | block.second;
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

}  // namespace lockstep
