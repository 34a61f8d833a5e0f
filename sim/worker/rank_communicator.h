#pragma once

#include <memory>

#include "sim/fault/call_mutants.h"
#include "sim/fault/mutants.h"
#include "sim/fault/network_faults.h"
#include "sim/fault/race_mutants.h"
#include "sim/worker/rank_program.h"

namespace lockstep {

// Communicator of one rank with its decorators, from the wire up: real -> faults of the network ->
// mutants -> recording -> mutants of calls -> faults at buckets -> a pool that starts buckets in
// any order.
class RankCommunicator {
 public:
  RankCommunicator(std::unique_ptr<Communicator> real, const RankContext& context,
                   RankFaults& faults, Probe& probe);
  Communicator& outermost() {
    return pool_ != nullptr ? static_cast<Communicator&>(*pool_) : *faulty_buckets_;
  }
  void begin_backward();
  void end_backward();

 private:
  FaultyCommunicator* faulty_network_ = nullptr;  // owned by mutants_
  MutantCommunicator* mutants_ = nullptr;         // owned by recording_
  std::unique_ptr<RecordingCommunicator> recording_;
  std::unique_ptr<CallMutants> call_mutants_;
  std::unique_ptr<FaultyCommunicator> faulty_buckets_;
  std::unique_ptr<RaceMutants> pool_;  // of mutant unordered_launch; else null
  Recorder& recorder_;
};

}  // namespace lockstep
