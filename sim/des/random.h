#pragma once

#include <cstdint>

namespace lockstep {

// Random numbers by address instead of by order: any of them can be asked for, in any order and on
// any number of threads, and is the same. Philox2x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011).

struct PhiloxBlock {
  uint32_t first, second;
};
PhiloxBlock philox2x32(uint32_t counter_low, uint32_t counter_high, uint32_t key);

// The numbers of all ranks at one place of a run: a seed, a pass and a bucket (-1: of the rank as a
// whole). Two places never share more than chance makes them share.
class RankStream {
 public:
  RankStream(uint64_t seed, int64_t pass, int64_t bucket);
  uint32_t at(int64_t rank) const;

  // The least and the largest of ranks [begin, end), which must not be empty: as at() would find,
  // without a call for each.
  struct Range {
    uint32_t least, largest;
  };
  Range range(int64_t begin, int64_t end) const;

  // A number that belongs to the place itself, 53 bits of it, in (0, 1).
  double of_all() const;

 private:
  uint32_t high_, key_;
};

// The middle of the bits' interval of (0, 1).
constexpr double unit_of(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1p-32; }

}  // namespace lockstep
