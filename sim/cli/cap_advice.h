#pragma once

#include <optional>
#include <vector>

#include "sim/des/machine_model.h"
#include "sim/report/simulate_document.h"

namespace lockstep {

// Without a measure of how far predictions are off, less is no reason to change a cap.
inline constexpr double kLeastGain = 0.005;

// Which bucket_cap_mb is fastest at each world size of a prediction, ascending, and how sure that
// is. A cap is recommended only where it is faster than `usual_mb` beyond the machine's error: how
// far its alternatives are apart, else the error between caps where it is known, else that of both
// step times. `usual_mb` is what the scenario has; where no line is of it, what is fastest is told
// with what cannot be told from it.
std::vector<CapAdvice> advise(const std::vector<SimulatedLine>& lines,
                              std::optional<double> usual_mb,
                              const std::optional<Accuracy>& accuracy);

}  // namespace lockstep
