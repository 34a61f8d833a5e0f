#include "sim/worker/own_network.h"

#include <algorithm>
#include <stdexcept>

#include "scenarios/faults.h"

namespace lockstep {
namespace {

constexpr const char* kNetworkKey = "own-network";

// "+PATH" of the switch, or "-REASON" why there is none.
std::string offer(const RunPlan& plan, const WorkerTask& task, OwnNetwork* network) {
  const std::string& kind = plan.scenario.communicator.kind;
  const bool shm = kind == "shm" || kind == "hierarchical";
  std::string why =
      shm ? "ranks that share memory have no links" : "ranks of several hosts have links already";
  if (task.host_ranks.empty() && !shm) network->run_switch = RunSwitch::make(&why);
  return network->run_switch ? "+" + network->run_switch->path() : "-" + why;
}

}  // namespace

OwnNetwork join_own_network(const RunPlan& plan, const WorkerTask& task, Store& store,
                            Deadline deadline) {
  OwnNetwork network;
  const std::vector<Fault>& faults = plan.scenario.faults;
  if (std::none_of(faults.begin(), faults.end(), by_own_link)) return network;
  if (task.rank == 0) store.set(kNetworkKey, offer(plan, task, &network));
  const std::string answer = store.get(kNetworkKey, deadline);
  if (answer.front() == '+') {
    network.link = OwnLink::join(answer.substr(1), task.rank);
  } else if (std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
               return by_own_link(fault) && fault.options.text("means") == "veth";
             })) {
    throw std::runtime_error("means \"veth\" of a fault: " + answer.substr(1));
  }
  return network;
}

}  // namespace lockstep
