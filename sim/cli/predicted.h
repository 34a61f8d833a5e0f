#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/calibrate/fit.h"
#include "sim/judge/judge.h"
#include "sim/report/sweep_document.h"

namespace lockstep {

// A plan in virtual time, judged by its records as a real run of it is, with metrics and intervals:
// what is measured there can be set beside it. The reason where the plan cannot be simulated on
// this machine, is too large to be recorded, or does not come to its end.
Expected<RunResult> judged_in_virtual_time(const RunPlan& plan, const MachineModel& machine);

// All that is wrong, in one line.
std::string reason_of(const InputErrors& errors);

// The combination of a sweep whose runs a machine is fitted to, so that the others are predicted
// without a look at them: of those with buckets and several ranks the first at DDP's default cap,
// else the first. Nothing where none has both.
std::optional<size_t> cell_to_calibrate_on(const std::vector<Cell>& cells);

// Of each line the step time in virtual time, on the machine that `samples` show, which are of the
// runs of the line of that label; of a line that cannot be simulated the reason. Bad input: they
// show none.
Expected<SweepDocument::Simulated> simulated_lines(const std::string& calibrated_on,
                                                   const std::vector<RunSamples>& samples,
                                                   const std::vector<CellResult>& lines,
                                                   int64_t warmup);

}  // namespace lockstep
