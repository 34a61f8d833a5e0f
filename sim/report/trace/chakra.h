#pragma once

#include <cstddef>
#include <string>

#include "sim/report/trace/traced_run.h"

namespace lockstep {

// A rank's execution trace in Chakra's format (.et, schema 0.0.4), for simulators such as
// ASTRA-sim: messages of protobuf, each behind its length, GlobalMetadata first and then Nodes, in
// the order of time and none before what it depends on.
//
// Compute (COMP_NODE) is every phase but waits and the rendezvous, cut where the rank called a
// collective, and goes on in one chain. A collective (COMM_COLL_NODE) depends on the compute before
// its call; compute depends on the collectives that had ended when it began, and one without a
// bucket (of buffers, at construction) is waited for at once. So compute may be made longer or
// shorter, and what follows moves. A collective that never ended has no duration. Each
// is of its process group (pg_name), "0" that of all ranks, and none is an operation of the host
// (is_cpu_op), which simulators leave out.
std::string chakra_trace(const TracedRun& run, size_t rank);

}  // namespace lockstep
