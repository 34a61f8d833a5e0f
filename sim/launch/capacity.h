#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// What this process may use now, not what the machine has: a container's limits count.
struct Capacity {
  int64_t cores = 1;         // affinity, and the quota of its control groups, rounded up
  int64_t memory_bytes = 0;  // free on the machine, and below the limits of its control groups
};
Capacity this_capacity();

// The limits of control groups, of version 1 and 2, from the process's own group up to the root.
// `root`: what stands before /proc and /sys (tests). Without a limit: INT64_MAX.
int64_t quota_cores(const std::string& root);
int64_t memory_below_limits(const std::string& root);

}  // namespace lockstep
