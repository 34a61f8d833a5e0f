#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Half-open stretches of time, and the arithmetic of metrics on merged ones.
struct Interval {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t length_ns() const { return end_ns > begin_ns ? end_ns - begin_ns : 0; }
};

// Ascending, disjoint, none empty: every instant of the given ones once.
std::vector<Interval> merged(std::vector<Interval> intervals);
int64_t length_ns(const std::vector<Interval>& merged);
// Of two merged lists.
std::vector<Interval> intersection(const std::vector<Interval>& a, const std::vector<Interval>& b);

}  // namespace lockstep
