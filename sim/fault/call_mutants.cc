#include "sim/fault/call_mutants.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <optional>
#include <utility>

#include "sim/fault/acting.h"
#include "sim/fault/changed_work.h"
#include "sim/fault/held_work.h"
#include "sim/fault/unawaited_work.h"

namespace lockstep {
namespace {

bool is_sum(const CollectiveCall& call) {
  return call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
}

class Calls : public CallMutants {
 public:
  Calls(Communicator& inner, const std::vector<MutantSpec>& mutants, Recorder& recorder)
      : CallMutants(inner.rank(), inner.world_size()),
        inner_(inner),
        mutants_(mutants),
        recorder_(recorder) {}

  void begin_backward() override { next_bucket_ = 0; }
  void end_backward() override {
    next_bucket_ = -1;
    held_.reset();
  }
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_.allocate(elements, dtype);
  }
  void close(Deadline deadline) noexcept override { inner_.close(deadline); }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    if (next_bucket_ < 0 || !is_sum(call)) return forward(inner_, call);
    const int64_t bucket = next_bucket_++;
    if (acts("no_deadline", bucket)) call.deadline = kNoDeadline;
    if (call.input.scalar_type() == at::kInt && acts("forget_used", std::nullopt))
      at::Tensor(call.input).zero_();
    if (call.input.is_floating_point() && acts("reuse_buffer", bucket)) reuse(call.input);
    if (call.input.is_sparse() && acts("empty_sparse", bucket)) empty(call.input);
    if (acts("other_type_call", bucket)) call.input = call.output = call.input.view(at::kInt);
    if (acts("other_order", bucket)) return gather_and_add(call);
    if (acts("reorder_buckets", bucket)) return hold(call);
    CommWorkPtr work = forward(inner_, call);
    if (held_) std::exchange(held_, nullptr)->launch();
    return acts("skip_wait", bucket) ? std::make_shared<UnawaitedWork>(work) : work;
  }

 private:
  // With a receipt if so.
  bool acts(const char* kind, std::optional<int64_t> bucket) {
    return acting(mutants_, kind, rank(), recorder_, bucket) != nullptr;
  }

  static void reuse(const at::Tensor& memory) {
    const c10::NoGradGuard no_grad;
    at::Tensor(memory).fill_(std::numeric_limits<double>::quiet_NaN());
  }

  static void empty(const at::Tensor& rows) {
    const c10::NoGradGuard no_grad;
    rows.sparse_resize_and_clear_(rows.sizes().vec(), rows.sparse_dim(), rows.dense_dim());
  }

  // The same addends from the last rank's to the first.
  CommWorkPtr gather_and_add(const CollectiveCall& call) {
    const at::Tensor sum = call.output;
    const at::Tensor own = sum.clone();
    const at::Tensor all = at::empty({world_size() * sum.numel()}, sum.options());
    auto work = inner_.all_gather(all, own, call.deadline);
    return std::make_shared<ChangedWork>(std::move(work), [sum, own, all, size = world_size()] {
      const c10::NoGradGuard no_grad;
      at::Tensor result = at::Tensor(sum).view({-1});
      result.copy_(part_of(all, size - 1, size));
      for (int64_t rank = size - 2; rank >= 0; --rank) result.add_(part_of(all, rank, size));
    });
  }

  CommWorkPtr hold(const CollectiveCall& call) {
    held_ = std::make_shared<HeldWork>([this, call] { return forward(inner_, call); });
    return held_;
  }

  Communicator& inner_;
  const std::vector<MutantSpec> mutants_;
  Recorder& recorder_;
  int64_t next_bucket_ = -1;
  std::shared_ptr<HeldWork> held_;  // until the next bucket has been called
};

}  // namespace

std::unique_ptr<CallMutants> make_call_mutants(Communicator& inner,
                                               const std::vector<MutantSpec>& mutants,
                                               Recorder& recorder) {
  return std::make_unique<Calls>(inner, mutants, recorder);
}

}  // namespace lockstep
