#pragma once

#include <string>
#include <vector>

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

}  // namespace lockstep::svg
