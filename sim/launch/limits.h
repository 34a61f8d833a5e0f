#pragma once

#include <cstdint>
#include <memory>
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

// A control group of this process alone, with a limit on its share of one core. Version 1 or 2 of
// the kernel's control groups, whichever has a cpu controller that may be written to (root).
class CpuQuota {
 public:
  // Null, with a reason, where there is none. `cores` above 0: 0.5 is half of one core. The kernel
  // stops the process for the rest of each period (10 ms) in which it has had its share.
  static std::unique_ptr<CpuQuota> enter(double cores, std::string* why);
  // Goes back to the group in which it was, and removes this one.
  ~CpuQuota();
  CpuQuota(const CpuQuota&) = delete;
  CpuQuota& operator=(const CpuQuota&) = delete;

  const std::string& folder() const { return folder_; }

  // Removes the group of a process that ended in it. Nothing happens where there is none.
  static void forget(int64_t pid) noexcept;

 private:
  CpuQuota(std::string before, std::string folder)
      : before_(std::move(before)), folder_(std::move(folder)) {}
  const std::string before_, folder_;
};

// Below LibTorch some do not come back where memory is refused: OpenBLAS asks for its buffer again
// and again, pthreadpool waits for threads that never began. So where this process has a limit of
// memory (ulimit -v, ulimit -d), that is asked for beforehand.

// Empty: there is no limit, or there is room for a process in which so many threads compute at a
// time. Else the sentence for the user.
std::string why_no_room(int64_t computing);

// Before anything is computed. Throws std::runtime_error with that sentence.
void take_room(int64_t computing);

}  // namespace lockstep
