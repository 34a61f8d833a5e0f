// How much memory a reducer takes beside the gradients: a copy of them, or with views nothing.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "reducer/comm/collective.h"
#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

struct Allocated {
  int64_t bytes = 0, most = 0;
};

// Counts the bytes of buckets, which are allocated through it, for as long as they live.
class Counting : public CollectiveCommunicator {
 public:
  Counting(Communicator& inner, std::shared_ptr<Allocated> allocated)
      : CollectiveCommunicator(inner.rank(), inner.world_size()),
        inner_(inner),
        allocated_(std::move(allocated)) {}
  void close(Deadline deadline) noexcept override { inner_.close(deadline); }
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    auto memory = std::make_shared<at::Tensor>(at::zeros({elements}, dtype));
    const auto bytes = static_cast<int64_t>(memory->nbytes());
    allocated_->bytes += bytes;
    allocated_->most = std::max(allocated_->most, allocated_->bytes);
    void* place = memory->data_ptr();
    return at::from_blob(
        place, {elements},
        [memory, bytes, allocated = allocated_](void*) { allocated->bytes -= bytes; },
        memory->options());
  }

 private:
  CommWorkPtr submit(CollectiveCall call) override { return forward(inner_, call); }
  Communicator& inner_;
  const std::shared_ptr<Allocated> allocated_;
};

int64_t gradient_bytes(const SmallModel& model) {
  int64_t bytes = 0;
  for (const NamedTensor& parameter : model.parameters)
    bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  return bytes;
}

// Over the steps in which buckets are laid out, used, and laid out anew.
Allocated buckets_of(const SmallModel& model, bool views) {
  const auto allocated = std::make_shared<Allocated>();
  run_ranks({"local", "ring"}, 1, [&](int64_t rank, Communicator& communicator) {
    Counting counting(communicator, allocated);
    TestProbe probe;
    ReducerOptions options;
    options.first_bucket_bytes = 100;
    options.bucket_cap_bytes = 400;
    options.gradient_as_bucket_view = views;
    const auto reducer = make_reducer(options, model.parameters, model.buffers, counting, probe);
    for (int64_t step = 1; step <= 3; ++step) {
      reducer->before_forward(true);
      const at::Tensor loss = shard_loss(model, rank, step);
      reducer->before_backward({loss});
      loss.backward();
      reducer->after_backward();
      EXPECT_EQ(allocated->bytes, gradient_bytes(model)) << step;
      const auto& gradient = model.p(0).grad();
      EXPECT_EQ(gradient.storage().nbytes() == gradient.nbytes(), !views) << step;
    }
  });
  return *allocated;
}

TEST(Memory, BucketsAreOneCopyOfTheGradientsAtAnyTime) {
  const SmallModel model(1);
  EXPECT_EQ(buckets_of(model, false).most, gradient_bytes(model));
}

// When they are laid out anew the old ones hold the gradients until those are moved.
TEST(Memory, WithViewsTheGradientsAreTheBuckets) {
  const SmallModel model(1);
  EXPECT_LE(buckets_of(model, true).most, 2 * gradient_bytes(model));
}

}  // namespace
}  // namespace lockstep
