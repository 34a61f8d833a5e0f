#include "sim/worker/gradient_sketch.h"

#include <cmath>

namespace lockstep {
namespace {

// splitmix64: the same signs on every rank.
uint64_t scrambled(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

std::vector<double> sketch_of(const WrongGradients& wrong, const WrongGradients::Values& values) {
  if (values.empty() || values.size() < 2 * wrong.ranks) return {};
  std::vector<double> sketch(kSketchSize, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return {};
    const uint64_t signs = scrambled(i);
    for (size_t k = 0; k < kSketchSize; ++k)
      sketch[k] += (signs >> k & 1) != 0 ? values[i] : -values[i];
  }
  return sketch;
}

}  // namespace lockstep
