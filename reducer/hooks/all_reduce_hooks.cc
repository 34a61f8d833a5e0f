#include <ATen/core/Tensor.h>

#include "reducer/hooks/hooks.h"

namespace lockstep {
namespace {

class AllReduceHook : public CommHook {
 public:
  Finish start(const HookBucket& bucket, HookGroup& group) override {
    at::Tensor gradients = bucket.gradients;
    gradients.div_(group.world_size());
    const CommWorkPtr work = group.all_reduce(gradients);
    return [work, gradients] {
      work->wait();
      return gradients;
    };
  }
};

class PostLocalSgdHook : public CommHook {
 public:
  explicit PostLocalSgdHook(int64_t start_step) : start_step_(start_step) {}

  Finish start(const HookBucket& bucket, HookGroup& group) override {
    if (bucket.step < start_step_) return shared_.start(bucket, group);
    return [gradients = bucket.gradients] { return gradients; };
  }

 private:
  const int64_t start_step_;
  AllReduceHook shared_;
};

class HalfHook : public CommHook {
 public:
  explicit HalfHook(at::ScalarType type) : type_(type) {}

  Finish start(const HookBucket& bucket, HookGroup& group) override {
    at::Tensor gradients = bucket.gradients;
    // copy: gradients of this very type must not be divided in place before the cast back.
    at::Tensor compressed = gradients.to(type_, /*non_blocking=*/false, /*copy=*/true);
    compressed.div_(group.world_size());
    const CommWorkPtr work = group.all_reduce(compressed);
    return [work, gradients, compressed] {
      work->wait();
      return gradients.copy_(compressed);
    };
  }

 private:
  const at::ScalarType type_;
};

}  // namespace

std::unique_ptr<CommHook> make_all_reduce_hook() { return std::make_unique<AllReduceHook>(); }

std::unique_ptr<CommHook> make_post_local_sgd_hook(int64_t start_step) {
  return std::make_unique<PostLocalSgdHook>(start_step);
}

std::unique_ptr<CommHook> make_half_hook(at::ScalarType type) {
  return std::make_unique<HalfHook>(type);
}

}  // namespace lockstep
