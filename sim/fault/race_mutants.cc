#include "sim/fault/race_mutants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "sim/fault/faulty_work.h"

namespace lockstep {
namespace {

// A sum that a pool has yet to start.
class PooledWork : public CommWork {
 public:
  PooledWork(CollectiveCall call, std::function<void()> start_all)
      : call_(std::move(call)), start_all_(std::move(start_all)) {}
  bool is_done() const override { return inner_ != nullptr && inner_->is_done(); }
  void wait() override {
    start_all_();
    inner_->wait();
  }
  void on_done(std::function<void(std::exception_ptr)> callback) override {
    if (inner_ != nullptr) return inner_->on_done(std::move(callback));
    callbacks_.push_back(std::move(callback));
  }
  void start(Communicator& communicator) {
    inner_ = forward(communicator, call_);
    for (auto& callback : callbacks_) inner_->on_done(std::move(callback));
    callbacks_.clear();
  }

 private:
  const CollectiveCall call_;
  const std::function<void()> start_all_;
  CommWorkPtr inner_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

class RacyCommunicator : public RaceMutants {
 public:
  RacyCommunicator(Communicator& inner, const std::vector<MutantSpec>& mutants,
                   std::function<size_t(size_t)> pick)
      : RaceMutants(inner.rank(), inner.world_size()),
        inner_(inner),
        mutants_(mutants),
        pick_(std::move(pick)) {}

  void begin_backward(int64_t step) override {
    step_ = step;
    bucket_ = -1;
    in_backward_ = true;
  }
  void end_backward() override {
    start_all();
    in_backward_ = false;
  }
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_.allocate(elements, dtype);
  }
  void close(Deadline deadline) noexcept override { inner_.close(deadline); }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    const bool is_bucket = in_backward_ && call.operation == Operation::all_reduce;
    if (is_bucket) ++bucket_;
    if (is_bucket && acts("unordered_launch")) return pooled(std::move(call));
    start_all();
    if (is_bucket && acts("skip_wait"))
      return std::make_shared<UnawaitedWork>(forward(inner_, call));
    if (is_bucket && acts("reuse_buffer")) return staged(call);
    return forward(inner_, call);
  }

 private:
  bool acts(const char* kind) const {
    return std::any_of(mutants_.begin(), mutants_.end(), [&](const MutantSpec& mutant) {
      return mutant.kind == kind && mutant.rank.value_or(rank()) == rank() &&
             mutant.step.value_or(step_) == step_ && mutant.bucket.value_or(bucket_) == bucket_;
    });
  }

  // Not LibTorch's copy_(), which ThreadSanitizer does not watch (scripts/races).
  static void copy(const at::Tensor& from, const at::Tensor& to) {
    std::memcpy(to.data_ptr(), from.data_ptr(), static_cast<size_t>(from.nbytes()));
  }

  CommWorkPtr staged(const CollectiveCall& call) {
    const at::Tensor& bucket = call.output;
    if (!staging_.defined() || staging_.numel() < bucket.numel() ||
        staging_.scalar_type() != bucket.scalar_type())
      staging_ = at::empty({bucket.numel()}, bucket.options());
    const at::Tensor part = staging_.narrow(0, 0, bucket.numel());
    copy(bucket, part);
    CommWorkPtr work = inner_.all_reduce(part, call.deadline);
    work->on_done([bucket, part](const std::exception_ptr& error) {
      if (!error) copy(part, bucket);
    });
    return work;
  }

  CommWorkPtr pooled(CollectiveCall call) {
    const auto work = std::make_shared<PooledWork>(std::move(call), [this] { start_all(); });
    pool_.push_back(work);
    // 0: the pool has not come round to it yet.
    for (size_t next = pick_(pool_.size() + 1); next > 0 && !pool_.empty();
         next = pick_(pool_.size() + 1))
      start(next - 1);
    return work;
  }
  void start(size_t place) {
    const auto work = pool_[place];
    pool_.erase(pool_.begin() + static_cast<std::ptrdiff_t>(place));
    work->start(inner_);
  }
  void start_all() {
    while (!pool_.empty()) start(pick_(pool_.size()));
  }

  Communicator& inner_;
  const std::vector<MutantSpec> mutants_;
  const std::function<size_t(size_t)> pick_;
  int64_t step_ = 0, bucket_ = -1;
  bool in_backward_ = false;
  at::Tensor staging_;
  std::deque<std::shared_ptr<PooledWork>> pool_;
};

}  // namespace

std::unique_ptr<RaceMutants> make_race_mutants(Communicator& inner,
                                               const std::vector<MutantSpec>& mutants,
                                               std::function<size_t(size_t)> pick) {
  return std::make_unique<RacyCommunicator>(inner, mutants, std::move(pick));
}

}  // namespace lockstep
