#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/calibrate/fit.h"
#include "sim/report/sweep_document.h"
#include "sim/sweep/design.h"

namespace lockstep {

// A sweep's step times in virtual time, beside what it has measured.

// The combination of a sweep whose runs a machine is fitted to, so that the others are predicted
// without a look at them: of those with buckets and several ranks the first at DDP's default cap,
// else the first. Nothing where none has both.
std::optional<size_t> cell_to_calibrate_on(const std::vector<Cell>& cells);

// Of each line the step time in virtual time, on the machine that `samples` show, which are of the
// runs of the line of that label; of a line that cannot be simulated the reason. Bad input: they
// show none.
Expected<SweepDocument::Simulated> simulated_lines(const Cell& calibrated_on,
                                                   const std::vector<RunSamples>& samples,
                                                   const std::vector<CellResult>& lines,
                                                   int64_t warmup);

}  // namespace lockstep
