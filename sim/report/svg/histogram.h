#pragma once

#include <string>
#include <vector>

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

}  // namespace lockstep::svg
