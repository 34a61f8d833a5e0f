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

namespace {

bool addresses(const std::optional<int64_t>& address, int64_t value) {
  return !address || *address == value;
}

class Mutants : public MutantCommunicator {
 public:
  Mutants(std::unique_ptr<Communicator> inner, const std::vector<MutantSpec>& mutants,
          Recorder& recorder)
      : inner_(std::move(inner)), mutants_(mutants), recorder_(recorder) {}

  int64_t rank() const override { return inner_->rank(); }
  int64_t world_size() const override { return inner_->world_size(); }
  void begin_backward() override { next_bucket_ = 0; }
  void end_backward() override { next_bucket_ = -1; }

  CommWorkPtr all_reduce(const at::Tensor& tensor, Deadline deadline) override {
    const auto lack_own = [&] {
      const c10::NoGradGuard no_grad;
      // zero_() would forget which dimensions are sparse.
      if (tensor.is_sparse())
        tensor._values().zero_();
      else
        at::Tensor(tensor).zero_();
    };
    const auto start = [this, tensor, deadline] {
      return reordered_ ? reordered_all_reduce(*inner_, tensor, deadline)
                        : inner_->all_reduce(tensor, deadline);
    };
    return sum(
        tensor, tensor, start, [] {}, lack_own);
  }

  CommWorkPtr broadcast(const at::Tensor& tensor, int64_t root, Deadline deadline) override {
    if (drops_weights_of(root)) return std::make_shared<SkippedWork>();
    if (misses_broadcast(tensor, root)) return unheard_broadcast(*inner_, tensor, root, deadline);
    return inner_->broadcast(tensor, root, deadline);
  }
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input,
                         Deadline deadline) override {
    const std::vector<int64_t> kept = owners_without_effect();
    std::vector<std::pair<at::Tensor, at::Tensor>> restore;
    for (const int64_t owner : kept)
      if (owner != rank()) {
        const at::Tensor part = part_of(output, owner, world_size());
        restore.emplace_back(part, part.clone());
      }
    CommWorkPtr work = inner_->all_gather(output, input, deadline);
    if (restore.empty()) return work;
    return std::make_shared<ChangedWork>(std::move(work), [restore] {
      c10::NoGradGuard no_grad;
      for (const auto& [part, before] : restore) at::Tensor(part).copy_(before);
    });
  }
  CommWorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                             Deadline deadline) override {
    return sum(
        input, output,
        [this, output, input, deadline] { return inner_->reduce_scatter(output, input, deadline); },
        [&] {
          c10::NoGradGuard no_grad;
          at::Tensor(output).copy_(part_of(input, rank(), world_size()));
        },
        [&] {
          c10::NoGradGuard no_grad;
          at::Tensor(input).zero_();
        });
  }
  CommWorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int64_t root,
                      Deadline deadline) override {
    return inner_->scatter(output, input, root, deadline);
  }
  CommWorkPtr gather(const at::Tensor& output, const at::Tensor& input, int64_t root,
                     Deadline deadline) override {
    return inner_->gather(output, input, root, deadline);
  }
  CommWorkPtr barrier(Deadline deadline) override { return inner_->barrier(deadline); }
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_->allocate(elements, dtype);
  }
  void close(Deadline deadline) noexcept override { inner_->close(deadline); }

 private:
  // A sum of a bucket: this rank's addend, and where its result will be; keep_own(): what is there
  // without the sum; lack_own(): makes this rank's addend zero.
  template <class Start, class KeepOwn, class LackOwn>
  CommWorkPtr sum(const at::Tensor& addend, const at::Tensor& result, Start start, KeepOwn keep_own,
                  LackOwn lack_own) {
    reordered_ = false;
    if (next_bucket_ < 0) return start();
    const int64_t bucket = next_bucket_++;
    std::function<void()> change;
    buckets_.remember(mutants_, bucket, addend);
    for (size_t i = 0; i < mutants_.size(); ++i) {
      if (!acts(mutants_[i], bucket)) continue;
      if (mutants_[i].kind == "drop_bucket") {
        receipt(i);
        keep_own();
        return std::make_shared<SkippedWork>();
      }
      if (mutants_[i].kind == "drop_contribution") {
        receipt(i);
        lack_own();
      }
      if (buckets_.change_addend(mutants_[i], bucket, addend)) receipt(i);
      if (mutants_[i].kind == "reorder_sum" && !addend.is_sparse()) {
        receipt(i);
        reordered_ = true;
      }
      if (auto made = change_of(mutants_[i], result)) {
        receipt(i);
        change = std::move(made);
      }
    }
    CommWorkPtr work = holds(bucket) ? hold(start) : start();
    if (held_ != nullptr && held_ != work) std::exchange(held_, nullptr)->launch();
    return change ? std::make_shared<ChangedWork>(std::move(work), std::move(change)) : work;
  }

  // With a receipt if so: this sum is called after the next one.
  bool holds(int64_t bucket) {
    for (size_t i = 0; i < mutants_.size(); ++i) {
      if (mutants_[i].kind != "swap_launches" || !acts(mutants_[i], bucket)) continue;
      receipt(i);
      return held_ == nullptr;
    }
    return false;
  }
  CommWorkPtr hold(std::function<CommWorkPtr()> start) {
    held_ = std::make_shared<HeldWork>(std::move(start));
    return held_;
  }

  std::vector<int64_t> owners_without_effect() {
    std::vector<int64_t> owners;
    for (int64_t owner = 0; owner < world_size(); ++owner)
      if (drops_weights_of(owner)) owners.push_back(owner);
    return owners;
  }

  // With a receipt if so. Only the update itself moves weights in its phase.
  bool drops_weights_of(int64_t owner) {
    if (recorder_.phase() != Phase::optimizer) return false;
    for (size_t i = 0; i < mutants_.size(); ++i) {
      if (mutants_[i].kind != "drop_weights" || !addresses(mutants_[i].rank, owner) ||
          !addresses(mutants_[i].step, recorder_.step()))
        continue;
      receipt(i);
      return true;
    }
    return false;
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

  std::unique_ptr<Communicator> inner_;
  std::vector<MutantSpec> mutants_;
  Recorder& recorder_;
  int64_t next_bucket_ = -1;
  BucketMutants buckets_;
  std::shared_ptr<HeldWork> held_;
  bool reordered_ = false;  // is the sum that begins now to be added in another order?
};

}  // namespace

bool has_mutant(const std::vector<MutantSpec>& mutants, const std::string& kind, int64_t rank) {
  for (const MutantSpec& mutant : mutants)
    if (mutant.kind == kind && addresses(mutant.rank, rank)) return true;
  return false;
}

int64_t shard_rank(const std::vector<MutantSpec>& mutants, int64_t rank, int64_t world_size) {
  return has_mutant(mutants, "duplicate_shard", rank) ? (rank + world_size - 1) % world_size : rank;
}

std::unique_ptr<MutantCommunicator> make_mutants(std::unique_ptr<Communicator> inner,
                                                 const std::vector<MutantSpec>& mutants,
                                                 Recorder& recorder) {
  return std::make_unique<Mutants>(std::move(inner), mutants, recorder);
}

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
