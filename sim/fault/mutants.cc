#include "sim/fault/mutants.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "reducer/comm/collective.h"
#include "sim/fault/bucket_mutants.h"
#include "sim/fault/faulty_work.h"

namespace lockstep {

const MutantSpec* acting(const std::vector<MutantSpec>& mutants, std::string_view kind,
                         int64_t rank, Recorder& recorder, std::optional<int64_t> bucket) {
  for (size_t i = 0; i < mutants.size(); ++i) {
    const MutantSpec& mutant = mutants[i];
    if (mutant.kind != kind || mutant.rank.value_or(rank) != rank ||
        mutant.step.value_or(recorder.step()) != recorder.step() ||
        (bucket && mutant.bucket.value_or(*bucket) != *bucket))
      continue;
    recorder.append(EventKind::receipt, static_cast<int32_t>(i));
    return &mutant;
  }
  return nullptr;
}

namespace {

// The batch begins one sample late.
std::vector<int64_t> shifted(std::vector<int64_t> samples, int64_t step, int64_t rank,
                             int64_t world_size, Split* split) {
  const std::vector<int64_t> next = split->shard(step, (rank + 1) % world_size);
  if (samples.empty() || next.empty()) return samples;
  std::rotate(samples.begin(), samples.begin() + 1, samples.end());
  samples.back() = next.front();
  return samples;
}

bool addresses(const std::optional<int64_t>& address, int64_t value) {
  return !address || *address == value;
}

class Mutants : public CommDecorator {
 public:
  Mutants(Communicator& inner, const std::vector<MutantSpec>& mutants, Recorder& recorder)
      : CommDecorator(inner), mutants_(mutants), recorder_(recorder) {}

 protected:
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    if (bucket >= 0) return sum(call, bucket);
    if (call.operation == Operation::broadcast) return broadcast(call);
    if (call.operation == Operation::all_gather) return all_gather(call);
    return forward(inner(), call);
  }

 private:
  CommWorkPtr broadcast(const CollectiveCall& call) {
    if (drops_weights_of(call.root)) return std::make_shared<SkippedWork>();
    if (misses_broadcast(call.output, call.root) || keeps_own_order(call.output, call.root))
      return unheard_broadcast(inner(), call.output, call.root, call.deadline);
    return forward(inner(), call);
  }

  CommWorkPtr all_gather(const CollectiveCall& call) {
    std::vector<std::pair<at::Tensor, at::Tensor>> restore;
    for (const int64_t owner : owners_without_effect())
      if (owner != rank()) {
        const at::Tensor part = part_of(call.output, owner, world_size());
        restore.emplace_back(part, part.clone());
      }
    CommWorkPtr work = forward(inner(), call);
    if (restore.empty()) return work;
    return std::make_shared<ChangedWork>(std::move(work), [restore] {
      c10::NoGradGuard no_grad;
      for (const auto& [part, before] : restore) at::Tensor(part).copy_(before);
    });
  }

  // What is there without the sum of a bucket.
  void keep_own(const CollectiveCall& call) const {
    const c10::NoGradGuard no_grad;
    if (call.operation == Operation::reduce_scatter)
      at::Tensor(call.output).copy_(part_of(call.input, rank(), world_size()));
  }

  // This rank adds zeros.
  static void lack_own(const CollectiveCall& call) {
    const c10::NoGradGuard no_grad;
    // zero_() would forget which dimensions are sparse.
    const at::Tensor& addend = call.input;
    (addend.is_sparse() ? addend._values() : at::Tensor(addend)).zero_();
  }

  CommWorkPtr sum(const CollectiveCall& call, int64_t bucket) {
    const at::Tensor &addend = call.input, &result = call.output;
    bool reordered = false;
    std::function<void()> change;
    buckets_.remember(mutants_, bucket, addend);
    for (size_t i = 0; i < mutants_.size(); ++i) {
      const MutantSpec& mutant = mutants_[i];
      if (!acts(mutant, bucket)) continue;
      if (mutant.kind == "drop_bucket") {
        receipt(i);
        keep_own(call);
        return std::make_shared<SkippedWork>();
      }
      if (mutant.kind == "drop_contribution") {
        receipt(i);
        lack_own(call);
      }
      if (buckets_.change_addend(mutant, bucket, addend)) receipt(i);
      if (mutant.kind == "reorder_sum" && !addend.is_sparse()) {
        receipt(i);
        reordered = true;
      }
      if (auto made = change_of(mutant, result)) {
        receipt(i);
        change = std::move(made);
      }
    }
    CommWorkPtr work = launch(call, bucket, reordered && call.operation == Operation::all_reduce);
    return change ? std::make_shared<ChangedWork>(std::move(work), std::move(change)) : work;
  }

  // One that was held back comes after the next.
  CommWorkPtr launch(const CollectiveCall& call, int64_t bucket, bool reordered) {
    const auto start = [this, call, reordered] {
      return reordered ? reordered_all_reduce(inner(), call.output, call.deadline)
                       : forward(inner(), call);
    };
    if (holds(bucket)) return held_ = std::make_shared<HeldWork>(start);
    CommWorkPtr work = start();
    if (held_ != nullptr) std::exchange(held_, nullptr)->launch();
    return work;
  }

  // With a receipt if so: this sum is called after the next one.
  bool holds(int64_t bucket) {
    return acting(mutants_, "swap_launches", rank(), recorder_, bucket) != nullptr &&
           held_ == nullptr;
  }

  std::vector<int64_t> owners_without_effect() {
    std::vector<int64_t> owners;
    for (int64_t owner = 0; owner < world_size(); ++owner)
      if (drops_weights_of(owner)) owners.push_back(owner);
    return owners;
  }

  // With a receipt if so. Only the update itself moves weights in its phase.
  bool drops_weights_of(int64_t owner) {
    return recorder_.phase() == Phase::optimizer &&
           acting(mutants_, "drop_weights", owner, recorder_) != nullptr;
  }

  // With a receipt if so. Weights and buffers are numbers; what ranks check is not.
  bool misses_broadcast(const at::Tensor& tensor, int64_t root) {
    if (recorder_.phase() != Phase::construction || recorder_.step() != 0 || root == rank() ||
        !tensor.is_floating_point())
      return false;
    for (size_t i = 0; i < mutants_.size(); ++i) {
      if (mutants_[i].kind != "drop_broadcast" || !addresses(mutants_[i].rank, rank())) continue;
      receipt(i);
      return true;
    }
    return false;
  }

  // With a receipt if so. Of what comes before a forward, only the order of buckets is integers
  // (the plan refuses models with buffers).
  bool keeps_own_order(const at::Tensor& tensor, int64_t root) {
    return recorder_.phase() == Phase::forward && root != rank() && !tensor.is_floating_point() &&
           acting(mutants_, "own_ready_order", rank(), recorder_) != nullptr;
  }

  bool acts(const MutantSpec& mutant, int64_t bucket) const {
    const int64_t wanted = mutant.kind == "flip_bit" ? mutant.bucket.value_or(0) : bucket;
    return addresses(mutant.rank, rank()) && addresses(mutant.step, recorder_.step()) &&
           addresses(mutant.bucket, bucket) && wanted == bucket;
  }

  std::function<void()> change_of(const MutantSpec& mutant, const at::Tensor& tensor) const {
    if (mutant.kind == "wrong_divisor") {
      const double ratio = static_cast<double>(world_size()) / (world_size() + 1.0);
      return [tensor, ratio] {
        c10::NoGradGuard no_grad;
        at::Tensor(tensor).mul_(ratio);
      };
    }
    if (mutant.kind == "flip_bit") return [tensor, mutant] { flip_bit(mutant, tensor); };
    return BucketMutants::short_slice(mutant, tensor);
  }

  void receipt(size_t index) { recorder_.append(EventKind::receipt, static_cast<int32_t>(index)); }

  const std::vector<MutantSpec> mutants_;
  Recorder& recorder_;
  BucketMutants buckets_;
  std::shared_ptr<HeldWork> held_;
};

class Calls : public CommDecorator {
 public:
  Calls(Communicator& inner, const std::vector<MutantSpec>& mutants, Recorder& recorder)
      : CommDecorator(inner), mutants_(mutants), recorder_(recorder) {}

  void end_backward() override {
    CommDecorator::end_backward();
    held_.reset();
  }

 protected:
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    if (bucket < 0) return forward(inner(), call);
    if (acts("no_deadline", bucket)) call.deadline = kNoDeadline;
    if (call.input.scalar_type() == at::kInt && acts("forget_used", std::nullopt))
      at::Tensor(call.input).zero_();
    if (call.input.is_floating_point() && acts("reuse_buffer", bucket)) reuse(call.input);
    if (call.input.is_sparse() && acts("empty_sparse", bucket)) empty(call.input);
    if (acts("other_type_call", bucket)) call.input = call.output = call.input.view(at::kInt);
    if (acts("other_order", bucket)) return gather_and_add(call);
    if (acts("reorder_buckets", bucket)) return hold(call);
    CommWorkPtr work = forward(inner(), call);
    if (held_) std::exchange(held_, nullptr)->launch();
    return acts("skip_wait", bucket) ? std::make_shared<SkippedWork>(work) : work;
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
    auto work = inner().all_gather(all, own, call.deadline);
    return std::make_shared<ChangedWork>(std::move(work), [sum, own, all, size = world_size()] {
      const c10::NoGradGuard no_grad;
      at::Tensor result = at::Tensor(sum).view({-1});
      result.copy_(part_of(all, size - 1, size));
      for (int64_t rank = size - 2; rank >= 0; --rank) result.add_(part_of(all, rank, size));
    });
  }

  CommWorkPtr hold(const CollectiveCall& call) {
    held_ = std::make_shared<HeldWork>([this, call] { return forward(inner(), call); });
    return held_;
  }

  const std::vector<MutantSpec> mutants_;
  Recorder& recorder_;
  std::shared_ptr<HeldWork> held_;  // until the next bucket has been called
};

}  // namespace

std::vector<int64_t> followed_samples(const std::vector<MutantSpec>& mutants, int64_t step,
                                      int64_t rank, int64_t world_size, Split* split) {
  std::vector<int64_t> samples = split->shard(step, shard_rank(mutants, rank, world_size));
  for (const MutantSpec& mutant : mutants) {
    if (mutant.step.value_or(step) != step) continue;
    const bool own = mutant.rank.value_or(rank) == rank;
    if (mutant.kind == "swap_shards" && mutant.rank && mutant.other) {
      if (own) samples = split->shard(step, *mutant.other);
      if (rank == *mutant.other) samples = split->shard(step, *mutant.rank);
    }
    if (mutant.kind == "stale_shard" && own && step > 1) samples = split->shard(step - 1, rank);
    if (mutant.kind == "shift_shard" && own)
      samples = shifted(std::move(samples), step, rank, world_size, split);
  }
  return samples;
}

bool has_mutant(const std::vector<MutantSpec>& mutants, const std::string& kind, int64_t rank) {
  for (const MutantSpec& mutant : mutants)
    if (mutant.kind == kind && addresses(mutant.rank, rank)) return true;
  return false;
}

int64_t shard_rank(const std::vector<MutantSpec>& mutants, int64_t rank, int64_t world_size) {
  return has_mutant(mutants, "duplicate_shard", rank) ? (rank + world_size - 1) % world_size : rank;
}

std::unique_ptr<Communicator> make_mutants(Communicator& inner,
                                           const std::vector<MutantSpec>& mutants,
                                           Recorder& recorder) {
  return std::make_unique<Mutants>(inner, mutants, recorder);
}

std::unique_ptr<Communicator> make_call_mutants(Communicator& inner,
                                                const std::vector<MutantSpec>& mutants,
                                                Recorder& recorder) {
  return std::make_unique<Calls>(inner, mutants, recorder);
}

}  // namespace lockstep
