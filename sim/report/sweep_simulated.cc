#include <algorithm>
#include <cmath>

#include "sim/report/sweep_document.h"

namespace lockstep {

std::optional<double> prediction_error(const SweepDocument& document, size_t line) {
  if (!document.simulated || !document.simulated->step_ms[line]) return std::nullopt;
  return *document.simulated->step_ms[line] / document.lines[line].step_ms.value - 1;
}

PredictionError prediction_error(const SweepDocument& document) {
  PredictionError error;
  for (size_t i = 0; i < document.lines.size(); ++i) {
    const auto one = prediction_error(document, i);
    if (!one || label_of(document.lines[i].cell) == document.simulated->calibrated_on) continue;
    ++error.lines;
    error.mean += std::fabs(*one);
    error.largest = std::max(error.largest, std::fabs(*one));
  }
  if (error.lines > 0) error.mean /= static_cast<double>(error.lines);
  return error;
}

std::string why_not_predicted(const SweepDocument& document, size_t line) {
  if (!document.simulated) return document.not_simulated;
  const auto& reasons = document.simulated->why_not;
  return line < reasons.size() ? reasons[line] : "";
}

}  // namespace lockstep
