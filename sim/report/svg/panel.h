#pragma once

#include <string>
#include <vector>

#include "sim/report/svg/canvas.h"

namespace lockstep::svg {

// Where an axis is marked, ascending, and what stands there. The first is at or below all values,
// the last at or above: they are the ends of the axis.
struct Ticks {
  std::vector<double> at;
  std::vector<std::string> labels;
  double low() const { return at.front(); }
  double high() const { return at.back(); }
};

enum class Scale { linear, log2 };

// Multiples of 1, 2 or 5 times a power of ten, from 2 to `most` of them. Of one value, around it,
// and of 0 upwards. low <= high, both finite and at most 1e15 from zero; most >= 4.
Ticks linear_ticks(double low, double high, int most);

// Powers of two, of 2^k every k-th one where there would be more than `most`. 0 < low <= high.
Ticks log2_ticks(double low, double high, int most);

// Values to pixels. On a log2 scale all are above 0.
class Mapping {
 public:
  Mapping(Scale scale, double low, double high, double from_px, double to_px);
  double operator()(double value) const;

 private:
  Scale scale_;
  double low_, high_, from_px_, to_px_;  // low and high as on the scale
};

// What all charts have in common. Pixels, from the document's left upper corner; charts stand
// below each other, each as wide as the document. Functions that draw return where they ended.

inline constexpr double kWidth = 960, kMargin = 24;

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

struct Axis {
  std::string title;  // with its unit: "step time (ms)"
  Scale scale = Scale::linear;
};

double draw_title(const std::string& title, double top, Canvas* canvas);

// Sentences below a chart, each from a line of its own, broken between words.
double draw_notes(const std::vector<std::string>& notes, double top, Canvas* canvas);

// Lines of the grid, ticks and title of an axis below the box, or left of it.
void draw_x_axis(const Box& box, const Axis& axis, const Ticks& ticks, const Mapping& x,
                 Canvas* canvas);
void draw_y_axis(const Box& box, const Axis& axis, const Ticks& ticks, const Mapping& y,
                 Canvas* canvas);
// How much room an x axis needs below its box.
inline constexpr double kXAxisHeight = 48;

struct LegendEntry {
  enum class Kind { curve, bar, mark };
  std::string name;
  Kind kind = Kind::curve;
  std::string classes;  // of its line or bar
  std::string mark;     // classes of its mark; empty: none
  size_t shape = 0;     // of mark_path()
};
// From left to right, as many lines as it takes. Long names are cut here, not in the tooltip.
double draw_legend(const std::vector<LegendEntry>& entries, double top, Canvas* canvas);

}  // namespace lockstep::svg
