#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// The environment variables of a process. A plain map, so that tests can make one.
using Variables = std::map<std::string, std::string>;
Variables this_environment();

// Which of a job's processes this one is, as the launcher that started it says.
struct Placement {
  std::string launcher;         // torchrun | mpi | slurm | none
  int64_t task = 0;             // of this process among the job's
  int64_t tasks = 1;            // processes that the launcher has started
  std::optional<int64_t> node;  // as the launcher counts nodes (torchrun: agents)
  std::optional<int64_t> nodes;
  bool one_host = false;    // the launcher says that all tasks are on this host
  std::string job;          // tells this job from others of the user; letters, digits, - _ .
  std::string master_addr;  // MASTER_ADDR, empty where not set
  int64_t master_port = 0;  // MASTER_PORT, 0 where not set
  bool port_held = false;   // the launcher itself listens there (TORCHELASTIC_USE_AGENT_STORE)
  std::string seen;         // "RANK=2 WORLD_SIZE=4": what the answer rests on
};

// launcher: auto | torchrun | mpi | slurm | none. With auto the first that is complete counts: RANK
// and WORLD_SIZE (torchrun sets them, also below srun, whose own variables then count agents), then
// OMPI_COMM_WORLD_*, then SLURM_* of a job step, then none. Variables of one launcher that
// contradict each other are bad input naming both values; those of others are not looked at.
Expected<Placement> detect_placement(const Variables& variables, const std::string& launcher);

// NCCL_*, GLOO_* and OMP_* variables: they change what a run does, so they stand in its result.
Variables recorded_variables(const Variables& variables);

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
