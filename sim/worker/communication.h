#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reducer/communicator.h"
#include "reducer/reducer.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/acts/rank_faults.h"
#include "sim/worker/rank_program.h"

namespace lockstep {

// Decorator: the communicator is given the memory of fake devices as tensors of the cpu, the
// only ones that Gloo knows.
std::unique_ptr<Communicator> with_host_views(std::unique_ptr<Communicator> inner);

// The ranks of a communicator as those that normalize their samples together.
class RankBatch : public BatchGroup {
 public:
  RankBatch(Communicator& communicator, std::chrono::milliseconds timeout)
      : communicator_(communicator), timeout_(timeout) {}
  // Throws CommError.
  at::Tensor all_gather(const at::Tensor& row) override;

 private:
  Communicator& communicator_;
  const std::chrono::milliseconds timeout_;  // of each collective
};

// What the scenario says of rank `rank`'s reducer, mutants included, faults not.
ReducerOptions reducer_options_of(const Scenario& scenario, int64_t rank);

// As it stands in a result (runs[].reducer_data), JSON; empty where the reducer has nothing to say.
std::string reducer_data_text(const ReducerData& data);

// Communicator of one rank with its decorators, from the wire up: real -> faults of the network ->
// mutants -> recording -> mutants of calls -> faults at buckets -> a pool that starts buckets in
// any order.
class RankCommunicator {
 public:
  RankCommunicator(std::unique_ptr<Communicator> real, const RankContext& context,
                   RankFaults& faults, Probe& probe);
  Communicator& outermost() { return pool_ != nullptr ? *pool_ : *faulty_buckets_; }

 private:
  // Each refers to the one before it.
  std::unique_ptr<Communicator> real_, faulty_network_, mutants_, recording_, call_mutants_,
      faulty_buckets_, pool_;  // of mutant unordered_launch; else null
};

}  // namespace lockstep
