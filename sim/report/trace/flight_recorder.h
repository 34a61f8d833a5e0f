#pragma once

#include <cstddef>
#include <string>

#include "sim/report/trace/traced_run.h"

namespace lockstep {

// What PyTorch's flight recorder would have dumped of this rank: a pickle of version 2.10, as
// PyTorch 2.15 writes it, for `python -m torch.distributed.flight_recorder.fr_trace FOLDER`,
// `lockstep explain FOLDER` and whatever else reads such dumps. The name of the file ends in the
// rank.
//
// There is one group, "0" (default_pg), of all ranks, and the newest 2,000 collectives, as many as
// PyTorch keeps by default. Other than PyTorch's own dumps over Gloo these tell what completed: an
// entry is "completed"; "started" where it failed or had not ended when the run did; or "scheduled"
// where it never left the rank's queue. None but the first is retired. Times are in nanoseconds on
// the launcher's CLOCK_MONOTONIC (in virtual time: since its begin), the same for all ranks. Frames
// of the program are not there; the phase and the step of a call are its only frame.
std::string flight_recorder_dump(const TracedRun& run, size_t rank);

}  // namespace lockstep
