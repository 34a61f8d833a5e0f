#include "sim/judge/mixture.h"

#include <cmath>
#include <utility>

namespace lockstep {
namespace {

using Values = std::vector<double>;

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void subtract(Values* from, double factor, const Values& what) {
  for (size_t i = 0; i < from->size(); ++i) (*from)[i] -= factor * what[i];
}

}  // namespace

// Gram and Schmidt, each direction taken out twice: parts may be much alike.
std::optional<Values> weights_of(const Values& result, const std::vector<Values>& parts,
                                 double rest) {
  const size_t count = parts.size();
  if (count == 0 || result.size() < count + 4) return std::nullopt;
  std::vector<Values> directions;
  std::vector<Values> upper(count, Values(count, 0));  // parts = directions x upper
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].size() != result.size()) return std::nullopt;
    Values left = parts[i];
    const double size = std::sqrt(dot(left, left));
    for (int pass = 0; pass < 2; ++pass)
      for (size_t j = 0; j < i; ++j) {
        const double along = dot(left, directions[j]);
        upper[j][i] += along;
        subtract(&left, along, directions[j]);
      }
    const double own = std::sqrt(dot(left, left));
    constexpr double kDependent = 1e-5;
    if (!(own > kDependent * size)) return std::nullopt;
    for (double& value : left) value /= own;
    upper[i][i] = own;
    directions.push_back(std::move(left));
  }
  Values weights(count), left = result;
  for (size_t i = 0; i < count; ++i) {
    weights[i] = dot(left, directions[i]);
    subtract(&left, weights[i], directions[i]);
  }
  if (!(std::sqrt(dot(left, left)) <= rest * std::sqrt(dot(result, result)))) return std::nullopt;
  for (size_t i = count; i-- > 0;) {
    for (size_t j = i + 1; j < count; ++j) weights[i] -= upper[i][j] * weights[j];
    weights[i] /= upper[i][i];
  }
  return weights;
}

}  // namespace lockstep
