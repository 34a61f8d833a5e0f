#pragma once

#include <vector>

#include "sim/report/svg/curves.h"

namespace lockstep::svg {

// About `most` of them: of each stretch of as many points the lowest and the highest, the ends, and
// those whose x is to be kept. `points` by ascending x.
std::vector<Point> thinned(const std::vector<Point>& points, size_t most,
                           const std::vector<double>& keep);

}  // namespace lockstep::svg
