#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/report/svg/panel.h"

namespace lockstep::svg {

// Several series over a common axis, with intervals.

struct Point {
  double x = 0, y = 0;
  std::optional<std::pair<double, double>> interval;  // of y: low, high
  std::string note;                                   // more for the tooltip
};

struct Series {
  std::string name;
  std::vector<Point> points;  // in any order
  // A level: what does not depend on x, drawn from edge to edge. Has one point, whose x is ignored.
  bool level = false;
  bool others = false;  // of somebody else, as published numbers are: neutral, with hollow marks
};

// A point to look at: by its series' place and its x, which one point has.
struct Highlight {
  size_t series = 0;
  double x = 0;
  std::string label;  // short, beside it: "4 MiB"
};

struct Curves {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  std::vector<Highlight> highlights;
  std::string highlight_meaning;   // in the legend, where there are any: "recommended"
  std::vector<std::string> notes;  // below it
  bool y_from_zero = false;        // else the axis begins near the least value
};

// Of all points together no more are drawn than about this; in each stretch of x the lowest and the
// highest stay, and the notes say how many were left out.
inline constexpr size_t kMostPoints = 4000;

// Values are finite, on a log2 axis above 0; of no point at all an empty frame is drawn.
double draw(const Curves& curves, double top, Canvas* canvas);

// Scaling: the step time of each world size, and the efficiency, the least world size's step time
// divided by it (1: ranks that are added cost nothing, as long as each keeps its share of work).
struct ScalingPoint {
  int64_t world_size = 1;
  double step_ms = 0;  // above 0
  std::optional<std::pair<double, double>> interval_ms = {};
};
struct ScalingSeries {
  std::string name;
  std::vector<ScalingPoint> points;
};
Curves step_times_of(const std::vector<ScalingSeries>& series);
// In percent; intervals are those of the step time, the least world size's median taken as exact.
Curves efficiencies_of(const std::vector<ScalingSeries>& series);

// About `most` of them: of each stretch of as many points the lowest and the highest, the ends, and
// those whose x is to be kept. `points` by ascending x.
std::vector<Point> thinned(const std::vector<Point>& points, size_t most,
                           const std::vector<double>& keep);

}  // namespace lockstep::svg
