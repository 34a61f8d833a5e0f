#include "reducer/c10d/c10d_adapters.h"

#include <ATen/ATen.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <vector>

#include "scenarios/base/error.h"

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

std::vector<at::Tensor> parts_of(const at::Tensor& whole, int64_t world_size) {
  std::vector<at::Tensor> parts;
  for (int64_t r = 0; r < world_size; ++r) parts.push_back(part_of(whole, r, world_size));
  return parts;
}

c10::intrusive_ptr<c10d::Work> start_move(C10dBackend& backend, const CollectiveCall& call) {
  const int64_t size = backend.getSize();
  std::vector<std::vector<at::Tensor>> wholes;
  switch (call.operation) {
    case Operation::all_gather: {
      wholes.push_back(parts_of(call.output, size));
      std::vector<at::Tensor> own{call.input.view({-1})};
      return backend.allgather(wholes, own, {});
    }
    case Operation::gather: {
      c10d::GatherOptions options;
      options.rootRank = call.root;
      if (call.output.defined()) wholes.push_back(parts_of(call.output, size));
      std::vector<at::Tensor> own{call.input.view({-1})};
      return backend.gather(wholes, own, options);
    }
    case Operation::scatter: {
      c10d::ScatterOptions options;
      options.rootRank = call.root;
      if (call.input.defined()) wholes.push_back(parts_of(call.input, size));
      std::vector<at::Tensor> own{call.output.view({-1})};
      return backend.scatter(own, wholes, options);
    }
    case Operation::all_to_all: {
      at::Tensor output = call.output.view({-1}), input = call.input.view({-1});
      std::vector<int64_t> alike;
      return backend.alltoall_base(output, input, alike, alike, {});
    }
    default:
      return backend.barrier({});
  }
}

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

void StoreAdapter::set(const std::string& key, const std::vector<uint8_t>& value) {
  store_->set(prefix_ + key, std::string(value.begin(), value.end()));
}

std::vector<uint8_t> StoreAdapter::get(const std::string& key) {
  const std::string value = store_->get(prefix_ + key, deadline_);
  return {value.begin(), value.end()};
}

int64_t StoreAdapter::add(const std::string& key, int64_t value) {
  return store_->add(prefix_ + key, value);
}

bool StoreAdapter::deleteKey(const std::string&) { return false; }

bool StoreAdapter::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return store_->has(prefix_ + key); });
}

int64_t StoreAdapter::getNumKeys() { throw std::logic_error("this store does not count its keys"); }

void StoreAdapter::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) store_->get(prefix_ + key, deadline_);
}

void StoreAdapter::wait(const std::vector<std::string>& keys,
                        const std::chrono::milliseconds& timeout) {
  const Deadline deadline = std::min(deadline_, deadline_after(timeout));
  for (const std::string& key : keys) store_->get(prefix_ + key, deadline);
}

c10::intrusive_ptr<c10d::Store> StoreAdapter::clone() {
  return c10::make_intrusive<StoreAdapter>(store_, prefix_, deadline_);
}

c10::intrusive_ptr<c10d::Work> start_call(C10dBackend& backend, const CollectiveCall& call,
                                          at::Tensor& summed) {
  if (call.operation == Operation::broadcast) {
    c10d::BroadcastOptions options;
    options.rootRank = call.root;
    std::vector<at::Tensor> tensors{call.output};
    return backend.broadcast(tensors, options);
  }
  if (call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter) {
    summed = call.operation == Operation::all_reduce ? call.output : call.input.clone();
    std::vector<at::Tensor> tensors{summed};
    return backend.allreduce(tensors, {});
  }
  return start_move(backend, call);
}

}  // namespace lockstep
