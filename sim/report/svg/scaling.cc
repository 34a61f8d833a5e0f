#include <fmt/format.h>

#include <algorithm>

#include "scenarios/base/error.h"
#include "sim/report/svg/curves.h"

namespace lockstep::svg {
namespace {

Curves over_world_size(const std::string& title, const std::string& y_title) {
  Curves curves;
  curves.title = title;
  curves.x = {"world size (ranks)", Scale::log2};
  curves.y.title = y_title;
  curves.y_from_zero = true;
  return curves;
}

Point scaling_point(const ScalingPoint& from) {
  Point point{static_cast<double>(from.world_size), from.step_ms, from.interval_ms, {}};
  return point;
}

}  // namespace

Curves step_times_of(const std::vector<ScalingSeries>& series) {
  Curves curves = over_world_size("Step time over world size", "step time (ms)");
  for (const ScalingSeries& one : series) {
    Series& made = curves.series.emplace_back();
    made.name = one.name;
    for (const ScalingPoint& point : one.points) made.points.push_back(scaling_point(point));
  }
  return curves;
}

Curves efficiencies_of(const std::vector<ScalingSeries>& series) {
  Curves curves = over_world_size("Scaling efficiency", "efficiency (%)");
  for (const ScalingSeries& one : series) {
    Series& made = curves.series.emplace_back();
    made.name = one.name;
    if (one.points.empty()) continue;
    const ScalingPoint& least = *std::min_element(
        one.points.begin(), one.points.end(),
        [](const ScalingPoint& a, const ScalingPoint& b) { return a.world_size < b.world_size; });
    for (const ScalingPoint& at : one.points) {
      LOCKSTEP_CHECK(at.step_ms > 0, "a step takes time");
      const auto percent = [&](double step_ms) { return 100 * least.step_ms / step_ms; };
      Point point = scaling_point(at);
      point.y = percent(at.step_ms);
      point.note = fmt::format("step {} ms", number_text(at.step_ms));
      if (point.interval && point.interval->first > 0)
        point.interval = {percent(point.interval->second), percent(point.interval->first)};
      else
        point.interval.reset();
      made.points.push_back(point);
    }
  }
  curves.notes.emplace_back(
      "Efficiency: the step time at the least world size, divided by that at this one.");
  return curves;
}

}  // namespace lockstep::svg
