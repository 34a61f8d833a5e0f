#include "sim/calibrate/accuracy.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <map>

namespace lockstep {
namespace {

double error_of(const ComparedRun& run) { return run.simulated_ms / run.measured_ms - 1; }

double mean_square(const std::vector<ComparedRun>& runs) {
  double sum = 0;
  for (const ComparedRun& run : runs) sum += error_of(run) * error_of(run);
  return sum / static_cast<double>(runs.size());
}

// What differs between caps is not what all of them are off by.
std::optional<double> cap_error_of(const std::vector<ComparedRun>& runs) {
  std::map<std::string, std::vector<double>> groups;
  for (const ComparedRun& run : runs) groups[run.but_for_cap].push_back(error_of(run));
  double squares = 0;
  int64_t degrees = 0;
  for (const auto& [name, errors] : groups) {
    double mean = 0;
    for (const double error : errors) mean += error / static_cast<double>(errors.size());
    for (const double error : errors) squares += (error - mean) * (error - mean);
    degrees += static_cast<int64_t>(errors.size()) - 1;
  }
  if (degrees < 2) return std::nullopt;
  // Of two runs: the variance of their difference is twice that of one.
  return student_975(degrees) * std::sqrt(2 * squares / static_cast<double>(degrees));
}

}  // namespace

double student_975(int64_t degrees) {
  // Of 1 to 30 degrees of freedom; Student, "The probable error of a mean" (1908), as tabulated.
  constexpr std::array<double, 30> kQuantiles = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  const auto count = static_cast<int64_t>(kQuantiles.size());
  if (degrees <= count) return kQuantiles[static_cast<size_t>(degrees - 1)];
  // Cornish and Fisher's first term: within 0.001 from 30 degrees on.
  const double normal = 1.959964;
  return normal + (normal * normal * normal + normal) / (4 * static_cast<double>(degrees));
}

std::optional<Accuracy> accuracy_of(const std::vector<ComparedRun>& runs) {
  if (runs.size() < 2) return std::nullopt;
  Accuracy accuracy;
  accuracy.runs = static_cast<int64_t>(runs.size());
  accuracy.held_out = true;
  const double count = static_cast<double>(runs.size());
  accuracy.step_error = student_975(accuracy.runs) * std::sqrt(mean_square(runs) * (1 + 1 / count));
  accuracy.cap_error = cap_error_of(runs);
  return accuracy;
}

}  // namespace lockstep
