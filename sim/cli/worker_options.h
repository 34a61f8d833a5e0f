#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/cli/verbs.h"
#include "sim/join/job_key.h"
#include "sim/join/rendezvous.h"

namespace lockstep {

// `lockstep worker SCENARIO`: this process is a rank, or starts some, of a run that others start
// on their side.
struct WorkerOptions {
  VerifyOptions verify;  // selection and output
  std::string launcher = "auto";
  std::optional<int64_t> nodes, node_rank, ranks_per_node;
  std::string master_addr;
  int64_t master_port = 0;
  std::string rendezvous;
  std::string interface;
  std::string job_key_file;  // empty: as find_job_key() says
};
int join_as_worker(const WorkerOptions& options);

// Options and environment put together.
struct JobPart {
  Placement placement;
  std::vector<int64_t> ranks;  // of this process
  int64_t world_size = 1;
  Rendezvous rendezvous;          // of one process alone: kind ""
  std::string interface_address;  // empty: not chosen
  JobKey job_key;
};
Expected<JobPart> decide_part(const WorkerOptions& options, const Variables& variables);

}  // namespace lockstep
