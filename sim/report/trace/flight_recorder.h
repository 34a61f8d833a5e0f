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
// There is the group of all ranks, "0" (default_pg), and, of a program, those of some ranks that
// the rank is in, as far as one of their members has called something in them; pg_id numbers the
// rank's own. "desc" is "undefined", as PyTorch has it, where nobody described a group. Kept are
// the newest 2,000 collectives, as many as by PyTorch's default; record_id counts from 0 over all
// groups, and begins later where earlier calls were lost. What is not known is left out: the
// time-out of a group, or the size of a tensor, whose shape is empty then. Other than PyTorch's own
// dumps over Gloo these tell what completed: an entry is "completed"; "started" where it failed or
// had not ended when the run did; or "scheduled" where it never left the rank's queue. None but the
// first is retired. Times are in nanoseconds on the launcher's CLOCK_MONOTONIC (in virtual time:
// since its begin), the same for all ranks. Frames of the program are not there; the phase and the
// step of a call are its only frame.
std::string flight_recorder_dump(const TracedRun& run, size_t rank);

}  // namespace lockstep
