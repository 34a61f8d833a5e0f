#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>

#include "reducer/communicator.h"
#include "reducer/compat.h"

namespace lockstep {

// `work` as a c10d::Work that gives `results` when it is done; `finish` is called just before.
c10::intrusive_ptr<c10d::Work> as_work(int rank, const CommWorkPtr& work,
                                       std::vector<at::Tensor> results,
                                       std::function<void()> finish);

// Puts any Communicator under what c10d::Reducer calls. Operations that the reducer does not use
// are refused by the base class.
class ProcessGroupAdapter : public compat::BackendBase<c10d::ProcessGroup, c10d::Backend> {
 public:
  using Base = compat::BackendBase<c10d::ProcessGroup, c10d::Backend>;
  // all_reduce: starts the sum of a bucket, on the thread that calls allreduce().
  using AllReduce = std::function<CommWorkPtr(const at::Tensor&)>;
  ProcessGroupAdapter(Communicator& communicator, std::chrono::milliseconds timeout,
                      AllReduce all_reduce);

  const std::string getBackendName() const override { return "lockstep"; }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options = c10d::AllreduceOptions()) override;
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& options = c10d::BroadcastOptions()) override;
  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = c10d::AllgatherOptions()) override;

 private:
  Communicator& communicator_;
  const std::chrono::milliseconds timeout_;
  const AllReduce all_reduce_;
};

}  // namespace lockstep
