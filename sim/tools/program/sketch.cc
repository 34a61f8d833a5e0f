#include "sim/tools/program/sketch.h"

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

double projected(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / 4);
}

}  // namespace

double sketch_distance(const Sketch& a, const Sketch& b, double floor) {
  if (!a && !b) return 0;
  if (!a || !b) return 1;
  return projected(*a, *b) / std::max({(*a)[4], (*b)[4], floor, 1e-300});
}

bool agree(const Sketch& a, const Sketch& b) { return sketch_distance(a, b, 0) <= kProgramBound; }

Sketch scaled_by(Sketch sketch, double factor) {
  if (!sketch) return sketch;
  for (double& value : *sketch) value *= factor;
  sketch->back() = std::abs(sketch->back());
  return sketch;
}

double sketch_ratio(const Sketch& a, const Sketch& b) {
  if (!a || !b) return 0;
  double over = 0, under = 0;
  for (size_t i = 0; i < 4; ++i) over += (*a)[i] * (*b)[i], under += (*b)[i] * (*b)[i];
  return under > 0 ? over / under : 0;
}

double largest_norm(const std::vector<Sketch>& tensors) {
  double most = 0;
  for (const Sketch& tensor : tensors)
    if (tensor) most = std::max(most, (*tensor)[4]);
  return most;
}

}  // namespace lockstep
