#pragma once

#include <string>

#include "scenarios/base/error.h"
#include "sim/join/environment.h"

namespace lockstep {

// What only the members of a job have, so that they can tell each other from strangers. Never sent.
struct JobKey {
  std::string bytes;   // empty: none
  std::string source;  // "--job-key-file", "LOCKSTEP_JOB_KEY", ..., for messages
};

// The first of these that is there: `file` (--job-key-file; "-" is standard input), the file that
// LOCKSTEP_JOB_KEY_FILE names, LOCKSTEP_JOB_KEY, what the launcher hands out to its processes alone
// (Open MPI does; torchrun and Slurm have nothing of the kind). Bad input: a key that is shorter
// than 16 bytes, a file that other users can read.
Expected<JobKey> find_job_key(const Variables& variables, const Placement& placement,
                              const std::string& file);

std::string new_job_key();  // 64 hexadecimal digits

}  // namespace lockstep
