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

// Of values that are not empty; of the middle two the larger.
template <class T>
T upper_median_of(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep
