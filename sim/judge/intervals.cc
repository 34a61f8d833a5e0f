#include "sim/judge/intervals.h"

#include <algorithm>

namespace lockstep {

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.length_ns() == 0; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (result.empty() || next.begin_ns > result.back().end_ns)
      result.push_back(next);
    else
      result.back().end_ns = std::max(result.back().end_ns, next.end_ns);
  }
  return result;
}

int64_t length_ns(const std::vector<Interval>& merged) {
  int64_t sum = 0;
  for (const Interval& interval : merged) sum += interval.length_ns();
  return sum;
}

std::vector<Interval> intersection(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> result;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common{std::max(a[i].begin_ns, b[j].begin_ns),
                          std::min(a[i].end_ns, b[j].end_ns)};
    if (common.length_ns() > 0) result.push_back(common);
    ++(a[i].end_ns < b[j].end_ns ? i : j);
  }
  return result;
}

}  // namespace lockstep
