#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "scenarios/base/file.h"

namespace lockstep {

// How long threads were ready to run and had no core, since each began, as the kernel counts it
// (run_delay, the second number of /proc/PID/task/TID/schedstat): what a busy machine does to a
// rank. Not counted is the time for which a control group of this process alone had used up its
// quota: that is the rank's own. A reading is a few short reads and never fails: what cannot be
// read is 0.
class CoreWait {
 public:
  // Of the thread that calls. A process's main thread speaks for its other threads too.
  static std::unique_ptr<CoreWait> of_this_thread();

  int64_t own_ns() noexcept;
  int64_t others_ns() noexcept;  // the other threads of the process, added up
  // Processes may be moved to other control groups.
  void look_for_group() noexcept;

 private:
  struct Thread {
    UniqueFd file;
    int64_t wait_ns = 0;
  };
  CoreWait(int64_t thread, bool speaks_for_all);
  int64_t throttled_ns() noexcept;
  void find_threads();

  const int64_t thread_;
  const bool speaks_for_all_;
  UniqueFd own_;
  std::map<int64_t, Thread> others_;
  int64_t ended_ns_ = 0;             // of threads that have ended
  std::string groups_;               // /proc/self/cgroup
  UniqueFd group_statistics_;        // of a group of this process alone; else none
  int64_t throttled_offset_ns_ = 0;  // what groups before it had counted, less its own beginning
  int64_t last_throttled_ns_ = 0;
};

// Of the main thread of a process, throttling included; 0 where it is gone.
int64_t core_wait_of_main_thread(int64_t pid);

}  // namespace lockstep
