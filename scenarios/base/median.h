#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// Of values that are not empty; the mean of the middle two.
inline double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace lockstep
