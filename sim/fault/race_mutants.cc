#include "sim/fault/mutants.h"

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

class RacyCommunicator : public CommDecorator {
 public:
  RacyCommunicator(Communicator& inner, const std::vector<MutantSpec>& mutants,
                   std::function<int64_t()> step, std::function<size_t(size_t)> pick)
      : CommDecorator(inner), mutants_(mutants), step_(std::move(step)), pick_(std::move(pick)) {}

  void end_backward() override {
    start_all();
    CommDecorator::end_backward();
  }

 protected:
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    const bool is_bucket = bucket >= 0 && (call.operation == Operation::all_reduce ||
                                           call.operation == Operation::all_to_all);
    const auto acts = [&](const char* kind) { return is_bucket && this->acts(kind, bucket); };
    if (acts("unordered_launch")) return pooled(std::move(call));
    start_all();
    if (acts("skip_wait")) return std::make_shared<SkippedWork>(forward(inner(), call));
    if (acts("reuse_buffer")) return staged(call);
    return forward(inner(), call);
  }

 private:
  bool acts(const char* kind, int64_t bucket) const {
    return std::any_of(mutants_.begin(), mutants_.end(), [&](const MutantSpec& mutant) {
      return mutant.kind == kind && mutant.rank.value_or(rank()) == rank() &&
             mutant.bucket.value_or(bucket) == bucket && (!mutant.step || *mutant.step == step_());
    });
  }

  // Not LibTorch's copy_(), which ThreadSanitizer does not watch (scripts/races).
  static void copy(const at::Tensor& from, const at::Tensor& to) {
    std::memcpy(to.data_ptr(), from.data_ptr(), static_cast<size_t>(from.nbytes()));
  }

  CommWorkPtr staged(CollectiveCall call) {
    const at::Tensor bucket = call.output;
    if (!staging_.defined() || staging_.numel() < bucket.numel() ||
        staging_.scalar_type() != bucket.scalar_type())
      staging_ = at::empty({bucket.numel()}, bucket.options());
    const at::Tensor part = staging_.narrow(0, 0, bucket.numel());
    if (call.operation == Operation::all_reduce) {
      copy(bucket, part);
      call.input = part;
    }
    call.output = part;
    CommWorkPtr work = forward(inner(), call);
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
    work->start(inner());
  }
  void start_all() {
    while (!pool_.empty()) start(pick_(pool_.size()));
  }

  const std::vector<MutantSpec> mutants_;
  const std::function<int64_t()> step_;
  const std::function<size_t(size_t)> pick_;
  at::Tensor staging_;
  std::deque<std::shared_ptr<PooledWork>> pool_;
};

}  // namespace

std::unique_ptr<Communicator> make_race_mutants(Communicator& inner,
                                                const std::vector<MutantSpec>& mutants,
                                                std::function<int64_t()> step,
                                                std::function<size_t(size_t)> pick) {
  return std::make_unique<RacyCommunicator>(inner, mutants, std::move(step), std::move(pick));
}

}  // namespace lockstep
