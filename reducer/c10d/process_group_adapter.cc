#include "reducer/c10d/process_group_adapter.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

using c10::ivalue::Future;

// Of an accelerator: who waits for a future that knows them makes his stream wait for the one that
// was current where it was completed.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors)
    if (!tensor.device().is_cpu()) devices.push_back(tensor.device());
  return devices;
}

// A CommWork as a c10d::Work; the reducer itself waits on the future.
class WorkAdapter : public c10d::Work {
 public:
  WorkAdapter(int rank, c10d::OpType type, CommWorkPtr work, std::vector<at::Tensor> results,
              std::function<void()> finish = {})
      : Work(rank, type),
        work_(std::move(work)),
        results_(results),
        future_(c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                            devices_of(results))) {
    work_->on_done([future = future_, results = std::move(results),
                    finish = std::move(finish)](const std::exception_ptr& error) {
      if (error) {
        future->setError(error);
        return;
      }
      if (finish) finish();
      future->markCompleted(c10::IValue(results));
    });
  }

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  bool wait(std::chrono::milliseconds) override {
    work_->wait();
    future_->wait();  // until `finish` has run
    return true;
  }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

 private:
  const CommWorkPtr work_;
  const std::vector<at::Tensor> results_;
  const c10::intrusive_ptr<Future> future_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> as_work(int rank, const CommWorkPtr& work,
                                       std::vector<at::Tensor> results,
                                       std::function<void()> finish) {
  return c10::make_intrusive<WorkAdapter>(rank, c10d::OpType::ALLREDUCE, work, std::move(results),
                                          std::move(finish));
}

ProcessGroupAdapter::ProcessGroupAdapter(Communicator& communicator,
                                         std::chrono::milliseconds timeout, AllReduce all_reduce)
    : Base(static_cast<int>(communicator.rank()), static_cast<int>(communicator.world_size())),
      communicator_(communicator),
      timeout_(timeout),
      all_reduce_(std::move(all_reduce)) {}

c10::intrusive_ptr<c10d::Work> ProcessGroupAdapter::allreduce(std::vector<at::Tensor>& tensors,
                                                              const c10d::AllreduceOptions&) {
  LOCKSTEP_CHECK(tensors.size() == 1, "one tensor a call");
  return c10::make_intrusive<WorkAdapter>(getRank(), c10d::OpType::ALLREDUCE,
                                          all_reduce_(tensors[0]), tensors);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupAdapter::broadcast(
    std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  LOCKSTEP_CHECK(tensors.size() == 1, "one tensor a call");
  return c10::make_intrusive<WorkAdapter>(
      getRank(), c10d::OpType::BROADCAST,
      communicator_.broadcast(tensors[0], options.rootRank, deadline_after(timeout_)), tensors);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupAdapter::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions&) {
  LOCKSTEP_CHECK(inputs.size() == 1 && outputs.size() == 1, "one tensor a call");
  const at::Tensor input = inputs[0].contiguous();
  const at::Tensor whole = at::empty({getSize(), input.numel()}, input.options());
  std::vector<at::Tensor> results = outputs[0];
  const auto spread = [whole, results] {
    c10::NoGradGuard no_grad;
    for (size_t r = 0; r < results.size(); ++r) {
      results[r].copy_(whole[static_cast<int64_t>(r)].view(results[r].sizes()));
    }
  };
  return c10::make_intrusive<WorkAdapter>(
      getRank(), c10d::OpType::ALLGATHER,
      communicator_.all_gather(whole, input, deadline_after(timeout_)), results, spread);
}

}  // namespace lockstep
