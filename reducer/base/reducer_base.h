#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "reducer/communicator.h"
#include "reducer/reducer.h"

namespace torch::autograd {
struct Node;
}
namespace lockstep {

// Where inputs may be uneven (ReducerOptions::join) every rank says before each forward whether it
// has a batch. One all_gather answers what DDP's join asks in three all-reduces: how many ranks
// still have one, which of them gives its buffers, and whether the backward will be synchronized.
// One thread starts; wait() and what it knows may be asked on another.
class JoinPoll {
 public:
  enum class Answer : int64_t { left, leaving, unsynchronized, synchronized };

  JoinPoll(Communicator& communicator, std::chrono::milliseconds timeout);

  // Collective; returns at once.
  void start(Answer own);
  // Blocks until all ranks have answered. Throws CommError.
  void wait() { work_->wait(); }
  const CommWorkPtr& work() const { return work_; }
  // Of the last start(): [world_size], filled when its work is done; the next start() takes others.
  const at::Tensor& answers() const { return answers_; }

  // Of the last answers, once they are there. Ranks that have a batch:
  int64_t active() const { return active(answers_); }
  static int64_t active(const at::Tensor& answers);
  // The largest of them. Where none has: the largest of those that are leaving.
  int64_t root() const;
  bool synchronizes() const;

 private:
  int64_t largest_with(Answer least) const;

  Communicator& communicator_;
  const std::chrono::milliseconds timeout_;
  at::Tensor own_, answers_;  // int64: [1], [world_size]
  CommWorkPtr work_;
};

// Calls `ready(place)` on the autograd thread each time the gradient of parameters[place] has been
// accumulated. Hooks are gone when it is destroyed; what `ready` throws comes out of backward().
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // Places of the parameters that the graph of `outputs` does not reach.
  std::vector<size_t> unreached_from(const std::vector<at::Tensor>& outputs) const;

 private:
  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;  // autograd itself holds it weakly
    uintptr_t key;
  };
  std::vector<Hook> hooks_;
};

// Parameters that are reduced: those with requires_grad, a tensor that is registered twice only
// once. Buckets of a reducer's own code hold places in these lists.
struct TrainedParameters {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  std::vector<int64_t> registration;  // index among all parameters
  std::vector<bool> sparse;           // expects a sparse gradient
};
TrainedParameters trained(const NamedTensors& parameters);

std::vector<BucketItem> bucket_items(const TrainedParameters& parameters);

// What all reducers do alike: manifest check and broadcast at construction, broadcast of buffers
// before a forward, reports of the layout, and what ranks without a batch join in.
class ReducerBase : public Reducer {
 public:
  ReducerBase(const ReducerOptions& options, const NamedTensors& parameters,
              const NamedTensors& buffers, Communicator& communicator, Probe& probe);

  void before_forward(bool synchronizes) override { share_buffers(synchronizes); }
  void after_forward() override;
  bool shadow() override;

 protected:
  // With options.join: says that this rank has a batch. First of all in before_forward().
  void announce_batch(bool synchronizes);
  // Lays buckets out anew where it is time to: before a forward, or in its shadow.
  virtual void renew_layout() {}
  // The collectives of the others' backward, with zeros.
  virtual void shadow_backward();
  // By which gradients are divided; asked during backward. May block until all ranks have answered.
  int64_t divisor();
  JoinPoll& roll() { return roll_; }

  // Of the forward that comes; only if the one before was synchronized. Broadcasts them, or does
  // what the buffer hook says, now or in after_forward().
  void share_buffers(bool synchronizes);
  // Throw the failure of an earlier one where there was one, rather than "closed".
  CommWorkPtr all_reduce(const at::Tensor& tensor);
  CommWorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input);
  CommWorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input);
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input);
  // Reports to the probe and returns `layout` with registration indices.
  BucketLayout announce(const BucketLayout& layout);
  // The same group for a comm hook.
  HookGroup& hook_group() { return hook_group_; }
  Deadline collective_deadline() const { return deadline_after(options_.collective_timeout); }
  // Of a layout of places: the bytes of each bucket.
  std::vector<int64_t> bytes_of(const BucketLayout& layout) const;
  // What is the same for all kinds with buckets.
  ReducerData data_of_parameters() const;
  // Throws std::runtime_error that names the parameters, by place, that have no gradient.
  void need_gradients(const std::function<bool(size_t place)>& has) const;

  const ReducerOptions options_;
  const TrainedParameters trained_;
  Communicator& communicator_;
  Probe& probe_;
  const int64_t world_size_;

 private:
  class ReducerGroup : public HookGroup {
   public:
    explicit ReducerGroup(ReducerBase& reducer) : reducer_(reducer) {}
    int64_t world_size() const override { return reducer_.world_size_; }
    CommWorkPtr all_reduce(const at::Tensor& tensor) override;
    CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override;

   private:
    ReducerBase& reducer_;
  };
  struct FirstFailure {
    std::mutex mutex;
    std::exception_ptr error;
  };
  CommWorkPtr started(const std::function<CommWorkPtr()>& start);
  void average_buffers();
  std::vector<at::Tensor> buffers_, state_;  // state_: parameters and buffers
  bool buffers_due_ = false;                 // in after_forward()
  JoinPoll roll_;
  bool ran_out_ = false;  // this rank, and it has said so
  bool last_synchronized_ = true;
  ReducerGroup hook_group_{*this};
  const std::shared_ptr<FirstFailure> first_failure_ = std::make_shared<FirstFailure>();
};

}  // namespace lockstep
