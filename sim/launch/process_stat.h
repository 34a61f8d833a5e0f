#pragma once

#include <sys/types.h>

namespace lockstep {

// What /proc/PID/stat says of a process.
struct ProcessStat {
  char state = 0;  // 'S', 'T'; 0: it is gone
  pid_t parent = 0, group = 0;
  double cpu_seconds = 0;           // that all its threads have computed
  double children_cpu_seconds = 0;  // of those that it has waited for
  int status = -1;                  // as waitpid gives it, of one that nobody has waited for yet
};
ProcessStat read_process_stat(pid_t pid);
// Of all processes of a group, and of those that they have waited for. Reads all of /proc.
double group_cpu_seconds(pid_t group);

}  // namespace lockstep
