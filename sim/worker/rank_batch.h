#pragma once

#include "reducer/communicator.h"
#include "scenarios/workloads/batch_group.h"

namespace lockstep {

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

}  // namespace lockstep
