#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

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

}  // namespace lockstep
