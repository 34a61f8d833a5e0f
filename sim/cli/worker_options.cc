#include "sim/cli/worker_options.h"

#include <fmt/format.h>

#include "sim/cli/conclude.h"

namespace lockstep {
namespace {

// One task per node, as --nodes says: the launcher, if any, must have started just these.
Expected<Placement> on_nodes(const WorkerOptions& options, Placement placement) {
  const int64_t nodes = options.nodes.value_or(placement.tasks);
  if (placement.launcher != "none" && placement.tasks != nodes)
    return option_error(fmt::format("--nodes {} contradicts the {} tasks that {} has started ({})",
                                    nodes, placement.tasks, placement.launcher, placement.seen),
                        "one task per node");
  if (options.node_rank)
    placement.task = *options.node_rank;
  else if (placement.launcher == "none" && nodes > 1)
    return option_error(fmt::format("--nodes {} without --node-rank", nodes),
                        fmt::format("--node-rank K from 0 to {}", nodes - 1));
  if (placement.task >= nodes)
    return option_error(fmt::format("--node-rank {} with --nodes {}", placement.task, nodes),
                        fmt::format("--node-rank from 0 to {}", nodes - 1));
  placement.tasks = nodes;
  placement.node = placement.task;
  placement.one_host = nodes == 1;
  return placement;
}

Expected<Placement> place(const WorkerOptions& options, const Variables& variables) {
  auto placement = detect_placement(variables, options.launcher);
  if (!placement) return placement;
  if (options.nodes || options.node_rank) placement = on_nodes(options, placement.value());
  if (!placement) return placement;
  Placement& p = placement.value();
  if (p.launcher == "none" && !options.nodes && !options.ranks_per_node)
    return option_error(
        "no launcher has started this process: none of RANK and WORLD_SIZE, "
        "OMPI_COMM_WORLD_RANK and _SIZE, SLURM_PROCID of a job step is set",
        "torchrun, mpirun or srun, or --nodes, --node-rank and --ranks-per-node");
  if (!options.master_addr.empty()) p.master_addr = options.master_addr;
  if (options.master_port != 0) p.master_port = options.master_port;
  if (!options.master_addr.empty() || options.master_port != 0) p.port_held = false;
  return placement;
}

// --interface, else what Gloo itself would be told.
Expected<std::string> interface_address(const WorkerOptions& options, const Variables& variables) {
  std::string name = options.interface, source = "--interface";
  if (const auto found = variables.find("GLOO_SOCKET_IFNAME");
      name.empty() && found != variables.end()) {
    name = found->second.substr(0, found->second.find(','));
    source = "GLOO_SOCKET_IFNAME";
  }
  if (name.empty()) return std::string();
  if (const auto address = address_of_interface(name)) return *address;
  return option_error(fmt::format("{} {}: no such interface with an address", source, name),
                      interfaces());
}

}  // namespace

Expected<JobPart> decide_part(const WorkerOptions& options, const Variables& variables) {
  const auto placement = place(options, variables);
  if (!placement) return placement.errors();
  const auto address = interface_address(options, variables);
  if (!address) return address.errors();
  auto key = find_job_key(variables, placement.value(), options.job_key_file);
  if (!key) return key.errors();
  JobPart part;
  part.job_key = key.value();
  part.placement = placement.value();
  part.interface_address = address.value();
  const int64_t per_task = options.ranks_per_node.value_or(1);
  part.world_size = part.placement.tasks * per_task;
  for (int64_t i = 0; i < per_task; ++i) part.ranks.push_back(part.placement.task * per_task + i);
  if (part.placement.tasks == 1) return part;
  auto rendezvous = choose_rendezvous(options.rendezvous, part.placement);
  if (!rendezvous) return rendezvous.errors();
  part.rendezvous = rendezvous.value();
  return part;
}

}  // namespace lockstep
