#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/verbs.h"
#include "sim/join/environment.h"
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

// `lockstep verify SCENARIO --hosts h1,h2`: one `lockstep worker` on each host, started through a
// remote shell as CMD HOST COMMAND (COMMAND: one word, for a shell there). The first host has rank
// 0, judges and prints; files named by --json and --out are its own. The program and the current
// folder must be found under the same paths everywhere.
struct HostsOptions {
  VerifyOptions verify;
  std::string hosts;  // separated by commas
  int64_t ranks_per_host = 1;
  std::string remote_shell = "ssh -o BatchMode=yes";
  int64_t master_port = 29500;
  std::string interface;
};
// Blocks until all have ended: the exit code of the first host, or 3 if it could not be reached.
int verify_on_hosts(const HostsOptions& options);

// The command for host number `index`, as the remote shell gets it.
std::vector<std::string> remote_command(const HostsOptions& options,
                                        const std::vector<std::string>& hosts, size_t index,
                                        const std::string& folder, const std::string& program);

}  // namespace lockstep
