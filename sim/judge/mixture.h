#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

// The weights by which `result` is the sum of `parts`, by least squares; none where the parts are
// not independent, or where more than `rest` of the result's size is left over.
std::optional<std::vector<double>> weights_of(const std::vector<double>& result,
                                              const std::vector<std::vector<double>>& parts,
                                              double rest);

}  // namespace lockstep
