#pragma once

#include "sim/tools/explain/dump.h"

namespace lockstep {

// Makes of a dump's entries, oldest first, what the attribution counts on: each collective is one
// entry, and `done` says whether it is over.
//
// PyTorch records what is coalesced (from 2.7 on, of collectives, too) as an entry for each part,
// whose states nobody updates, and one for the whole, "coalesced", whose state counts: they become
// one. That of sends and receives bears the number of the collective before them: it becomes one of
// them. A communicator's collectives end in their order: before one that is over, all are. What
// the ring may have lost the beginning of is not compared with other ranks.
void settle(FlightDump* dump);

}  // namespace lockstep
