#pragma once

#include <string>
#include <vector>

#include "sim/cli/verbs.h"

namespace lockstep {

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
