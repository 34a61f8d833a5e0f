#pragma once

#include <string>
#include <variant>
#include <vector>

#include "sim/report/svg/curves.h"
#include "sim/report/svg/gantt.h"
#include "sim/report/svg/panel.h"

namespace lockstep::svg {

// How often which values were seen, with their median and 95th percentile.
struct Histogram {
  std::string title;
  Axis x;               // "skew of a collective (ms)"; log2: bins of a quarter octave, or more
  std::string counted;  // "collectives": the other axis, and the tooltips
  std::vector<double> values;
  std::vector<std::string> notes;
};

// All values count, however many. Values are finite, on a log2 axis above 0; of none it says so.
double draw(const Histogram& histogram, double top, Canvas* canvas);

// The q-th quantile by nearest rank: the least value that has at least q of all at or below it. Of
// values that are not empty; 0 < q <= 1.
double quantile_of(std::vector<double> values, double q);

// One document: charts below each other. Plain values in, the same bytes out for the same values.
// It uses nothing from elsewhere, reads well at its own size (960 pixels wide), in light and dark
// (it follows the browser's scheme), and can stand in an <img> or within a page. Nothing is told by
// colour alone, and every mark has a tooltip. Names may hold any bytes.
struct Figure {
  std::string title;
  std::string description;  // what is to be seen, for those who cannot see it
  std::vector<std::variant<Curves, Histogram, Gantt>> charts;
  std::vector<std::string> notes;  // at the end: what made it, where and when
};

// An SVG 1.1 document, UTF-8, ending in a newline.
std::string svg_of(const Figure& figure);

}  // namespace lockstep::svg
