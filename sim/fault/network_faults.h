#pragma once

#include <memory>

#include "reducer/comm/collective.h"
#include "sim/fault/acts/own_link.h"
#include "sim/fault/acts/rank_faults.h"

namespace lockstep {

// Decorators that let faults act at collectives. They count buckets as the recording one does;
// `inner` must outlive them.

// Outermost: faults with a bucket as their address act before the rank enters its collective;
// skip_collective never enters it.
std::unique_ptr<Communicator> make_faulty_buckets(Communicator& inner, RankFaults& faults);

// Innermost: the faults of the network. slow_link, latency and jitter hold each collective back in
// a queue of this rank; half_open and partition take what it sends away, so that it waits until its
// deadline. Where the rank has a link of its own (may be null), faults whose `means` ask for it are
// left to the kernel, and the collectives pass through.
// With faults of the network anywhere in the scenario, every rank records when its collectives
// leave the queue (EventKind::launched). Without faults all passes through.
std::unique_ptr<Communicator> make_faulty_network(Communicator& inner, RankFaults& faults,
                                                  Recorder& recorder, OwnLink* own_link);

// Decorator of the store for slow_store: each access takes the fault's duration longer.
std::shared_ptr<Store> make_slow_store(std::shared_ptr<Store> inner, double duration_ms);

}  // namespace lockstep
