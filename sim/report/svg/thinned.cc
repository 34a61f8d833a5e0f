#include "sim/report/svg/thinned.h"

#include <algorithm>

namespace lockstep::svg {

std::vector<Point> thinned(const std::vector<Point>& points, size_t most,
                           const std::vector<double>& keep) {
  if (points.size() <= most) return points;
  std::vector<bool> stays(points.size(), false);
  stays.front() = stays.back() = true;
  const size_t stretches = std::max<size_t>(1, most / 2);
  const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<int64_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<int64_t>(points.size() * (i + 1) / stretches);
    const auto [low, high] = std::minmax_element(begin, end, lower);
    stays[static_cast<size_t>(low - points.begin())] = true;
    stays[static_cast<size_t>(high - points.begin())] = true;
  }
  std::vector<Point> left;
  for (size_t i = 0; i < points.size(); ++i)
    if (stays[i] || std::find(keep.begin(), keep.end(), points[i].x) != keep.end())
      left.push_back(points[i]);
  return left;
}

}  // namespace lockstep::svg
