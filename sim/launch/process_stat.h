#pragma once

#include <sys/types.h>

namespace lockstep {

// What /proc/PID/stat says of a process.
struct ProcessStat {
  char state = 0;  // 'S', 'T'; 0: it is gone
  pid_t parent = 0;
  double cpu_seconds = 0;  // that all its threads have computed
  int status = -1;         // as waitpid gives it, of one that nobody has waited for yet
};
ProcessStat read_process_stat(pid_t pid);

}  // namespace lockstep
