#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reducer/communicator.h"

namespace lockstep {

// Which ranks are on which host: `per_host` one after the other, the last host maybe fewer. The
// first rank of a host is its leader.
struct Hosts {
  int64_t world_size = 1, per_host = 1;
  int64_t count() const { return (world_size + per_host - 1) / per_host; }
  int64_t of(int64_t rank) const { return rank / per_host; }
  int64_t first(int64_t host) const { return host * per_host; }
  int64_t size(int64_t host) const {
    const int64_t left = world_size - first(host);
    return left < per_host ? left : per_host;
  }
};

// Shared memory within a host, Gloo between the leaders of hosts. A sum is made in three steps:
// each host's own in shared memory, the sum of these over the leaders by Gloo, and a copy to the
// others of the host; both additions are in the order of `options.algorithm` (not rank_order), so
// the whole has an order of its own (golden/reduction_order.h, "ring/4"). Bytes between hosts are
// those of one rank a host; hosts of unequal size work alike. reduce_scatter sums the whole and
// takes a part; scatter and gather go the way of broadcast and all_gather; sparse sums are in order
// of rank as everywhere.
//
// The hosts may be several in name only, on one machine; ranks of one host must share a kernel.
// Blocks until connected with all ranks or the deadline has passed (CommError). What fails within
// a host closes this rank's connections, so that the other hosts learn of it at once; errors name
// ranks of the whole group.
std::unique_ptr<Communicator> make_hierarchical_communicator(const CommOptions& options,
                                                             int64_t ranks_per_host,
                                                             const std::shared_ptr<Store>& store,
                                                             Deadline deadline);

}  // namespace lockstep
