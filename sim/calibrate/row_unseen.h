#pragma once

#include <cstdint>

#include "sim/des/machine_model.h"

namespace lockstep {

// What the fitted row says nothing of: links that it does not go over, and other accelerators.

// Links that the fitted row does not go over may be so many times slower than the machine's. Over
// TCP Horovod uses 32 of 100 Gb/s (Zhang and others, "Is network the bottleneck of distributed
// training?", NetAI 2020); without GPUDirect bytes go through the memory of both hosts.
inline constexpr double kUnseenSlower = 4;
// A message that takes longer goes through a kernel; so may one of which nobody says it (0).
inline constexpr int64_t kMostRdmaNs = 10'000;

// Of a row of one rank, who saw no link at all, TCP's may be kMostSlower, as may links within a
// host: who does not use NVLink goes over PCI Express, which has 16 GB/s of its 150 to 300. What
// ranks of a host are said to share is PCI Express.
struct UnseenSlower {
  double link = 1, cores = 1, across = 1;
};
UnseenSlower unseen_slower(const CostModel& said, int64_t fitted_ranks);
// What the row does not go over, as slow as it may be than `said`.
void slow_unseen(const MachineModel& said, int64_t fitted_ranks, MachineModel* machine);

// How far compute of so many ranks may be from that of the fitted row's, as a part of it, in either
// direction: theirs are other accelerators of the same kind, and the slowest of them is two
// standard deviations of the slowest of so many draws.
double other_accelerators(int64_t ranks, int64_t fitted_ranks, double spread);

}  // namespace lockstep
