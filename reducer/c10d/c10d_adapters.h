#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/collective.h"
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

// Our Store as c10d wants one. It never deletes keys and cannot list them: ProcessGroupGloo does
// not ask for that.
class StoreAdapter : public c10d::Store {
 public:
  StoreAdapter(std::shared_ptr<lockstep::Store> store, std::string prefix, Deadline deadline)
      : store_(std::move(store)), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  // Pure virtual in later versions, absent in earlier ones.
  c10::intrusive_ptr<c10d::Store> clone();

 private:
  const std::shared_ptr<lockstep::Store> store_;
  const std::string prefix_;
  const Deadline deadline_;
};

using C10dBackend = ProcessGroupAdapter::Base;  // what ProcessGroupGloo and ProcessGroupNCCL are

// Starts `call` on a backend of LibTorch's. `summed` is where the sum of an all_reduce is made, and
// that of a reduce_scatter, which not every backend has: who waits copies this rank's part out.
// Throws what the backend throws.
c10::intrusive_ptr<c10d::Work> start_call(C10dBackend& backend, const CollectiveCall& call,
                                          at::Tensor& summed);

// Any backend of LibTorch's as a Communicator, for those that know the tensors of one device alone
// and call nobody back when a collective has ended on it, as ProcessGroupNCCL. A thread asks for
// the end of each work, so that works end, deadlines included, when their result is there. Tensors
// of the host travel through copies on `device`. A barrier is a sum of one element.

// abort(): ends what the backend has under way, from any thread; called once, when a deadline has
// passed or a collective has failed.
std::unique_ptr<Communicator> make_backend_communicator(c10::intrusive_ptr<C10dBackend> backend,
                                                        c10::Device device,
                                                        std::function<void()> abort);

}  // namespace lockstep
