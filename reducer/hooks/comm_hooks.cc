#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <random>

#include "reducer/comm_hook.h"
#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"

namespace lockstep {

namespace {

// Divides by the number of ranks, then adds.
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

// As AllReduceHook before step `start_step`; from then on ranks keep their own gradients.
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

// Casts to `type` (half or bfloat16), divides, adds there, casts back.
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

// PowerSGD (Vogels, Karimireddy, Jaggi 2019): a gradient matrix M [n, m] travels as two narrow
// ones, P = M Q [n, r] and Q = M^T P [m, r], each averaged over ranks, and is rebuilt as P Q^T.
// Error feedback, unless it is off, adds what was lost to the next step's gradient; the last Q is
// the next first basis (warm start). Vectors, and matrices that would not become smaller, are
// averaged as they are.

// What is kept of one gradient matrix.
struct Matrix {
  at::Tensor gradient;  // [n, m], a view of the bucket
  at::Tensor error;     // [n, m], local
  at::Tensor p;         // [n, r], view of the bucket's flat P
  at::Tensor q;         // [m, r], view of its flat Q
};

struct BucketState {
  std::vector<Matrix> matrices;
  std::vector<at::Tensor> rest;  // gradients that travel as they are
  at::Tensor flat_rest, flat_p, flat_q;
  at::Tensor gradients;  // the bucket they were made for
};

// Modified Gram-Schmidt on columns. A column that is nothing but rounding stays tiny.
void orthogonalize(at::Tensor matrix) {
  constexpr double kTiny = 1e-12;
  for (int64_t c = 0; c < matrix.size(1); ++c) {
    at::Tensor column = matrix.select(1, c);
    const double length = column.norm().item<double>();
    for (int64_t before = 0; before < c; ++before) {
      const at::Tensor other = matrix.select(1, before);
      column.sub_(other * (other * column).sum());
    }
    const double left = column.norm().item<double>();
    // Dependent on the columns before: what is left has no direction.
    if (left <= kTiny * length || left == 0)
      column.zero_();
    else
      column.div_(left);
  }
}

class PowerSgd : public CommHook {
 public:
  explicit PowerSgd(const CommHookOptions& options)
      : rank_(options.rank),
        start_step_(options.start_step),
        error_feedback_(options.error_feedback),
        seed_(options.seed) {}

  Finish start(const HookBucket& bucket, HookGroup& group) override {
    if (bucket.step < start_step_) return before_.start(bucket, group);
    BucketState& state = prepared(bucket);
    int64_t offset = 0;
    for (const at::Tensor& gradient : state.rest) {
      state.flat_rest.narrow(0, offset, gradient.numel()).copy_(gradient.reshape({-1}));
      offset += gradient.numel();
    }
    for (Matrix& matrix : state.matrices) {
      matrix.error.add_(matrix.gradient);  // from here on: what is to be sent
      orthogonalize(matrix.q);
      matrix.p.copy_(at::matmul(matrix.error, matrix.q));
    }
    std::vector<CommWorkPtr> works;
    if (state.flat_rest.numel() > 0) works.push_back(group.all_reduce(state.flat_rest));
    if (state.flat_p.numel() > 0) works.push_back(group.all_reduce(state.flat_p));
    return [this, &state, &group, works] { return finish(state, group, works); };
  }

 private:
  bool shrinks(const at::Tensor& gradient) const {
    if (gradient.dim() < 2 || !gradient.is_contiguous()) return false;
    const int64_t n = gradient.size(0), m = gradient.numel() / std::max<int64_t>(n, 1);
    return (n + m) * rank_ < n * m;
  }

  BucketState& prepared(const HookBucket& bucket) {
    BucketState& state = states_[bucket.index];
    const bool is_known =
        state.gradients.defined() && state.gradients.data_ptr() == bucket.gradients.data_ptr();
    if (!is_known) state = fresh(bucket);  // the first time, or buckets were laid out anew
    return state;
  }

  BucketState fresh(const HookBucket& bucket) const {
    BucketState state;
    state.gradients = bucket.gradients;
    int64_t rest = 0, rows = 0, columns = 0;
    for (const at::Tensor& gradient : bucket.by_parameter) {
      if (!shrinks(gradient)) {
        state.rest.push_back(gradient);
        rest += gradient.numel();
        continue;
      }
      Matrix matrix;
      matrix.gradient = gradient.view({gradient.size(0), -1});
      matrix.error = at::zeros_like(matrix.gradient);
      rows += matrix.gradient.size(0);
      columns += matrix.gradient.size(1);
      state.matrices.push_back(matrix);
    }
    const auto options = bucket.gradients.options();
    state.flat_rest = at::empty({rest}, options);
    state.flat_p = at::empty({rows * rank_}, options);
    state.flat_q = random_basis(columns * rank_, bucket);
    cut(&state);
    return state;
  }

  void cut(BucketState* state) const {
    int64_t row = 0, column = 0;
    for (Matrix& matrix : state->matrices) {
      const int64_t n = matrix.gradient.size(0), m = matrix.gradient.size(1);
      matrix.p = state->flat_p.narrow(0, row * rank_, n * rank_).view({n, rank_});
      matrix.q = state->flat_q.narrow(0, column * rank_, m * rank_).view({m, rank_});
      row += n;
      column += m;
    }
  }

  // The same on every rank, and apart from LibTorch's generator.
  at::Tensor random_basis(int64_t count, const HookBucket& bucket) const {
    std::mt19937_64 engine(substream_seed(seed_, "powersgd", static_cast<uint64_t>(bucket.index)));
    at::Tensor values = at::empty({count}, at::kDouble);
    double* out = values.data_ptr<double>();
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<double>(static_cast<int64_t>(engine())) * 0x1p-63;
    return values.to(bucket.gradients.scalar_type());
  }

  at::Tensor finish(BucketState& state, HookGroup& group,
                    const std::vector<CommWorkPtr>& works) const {
    for (const CommWorkPtr& work : works) work->wait();
    for (Matrix& matrix : state.matrices) {
      orthogonalize(matrix.p);
      matrix.q.copy_(at::matmul(matrix.error.t(), matrix.p));
    }
    if (state.flat_q.numel() > 0) group.all_reduce(state.flat_q)->wait();
    state.flat_q.div_(group.world_size());
    for (Matrix& matrix : state.matrices) {
      matrix.gradient.copy_(at::matmul(matrix.p, matrix.q.t()));
      error_feedback_ ? matrix.error.sub_(matrix.gradient) : matrix.error.zero_();
    }
    int64_t offset = 0;
    state.flat_rest.div_(group.world_size());
    for (at::Tensor& gradient : state.rest) {
      const at::Tensor average = state.flat_rest.narrow(0, offset, gradient.numel());
      gradient.copy_(average.view(gradient.sizes()));
      offset += gradient.numel();
    }
    return state.gradients;
  }

  const int64_t rank_;
  const int64_t start_step_;
  const bool error_feedback_;
  const uint64_t seed_;
  AllReduceHook before_;
  std::map<int64_t, BucketState> states_;  // by bucket
};

Registry<CommHookFactory>& hooks() {
  static Registry<CommHookFactory> known("comm hook");
  return known;
}

}  // namespace

bool register_comm_hook(const std::string& name, CommHookFactory factory) {
  return hooks().add(name, std::move(factory));
}

void find_comm_hook(const std::string& name) { hooks().get(name); }

std::unique_ptr<CommHook> make_comm_hook(const CommHookOptions& options) {
  if (options.kind == "none") return nullptr;
  if (options.kind == "registered") return hooks().get(options.name)();
  if (options.kind == "allreduce") return std::make_unique<AllReduceHook>();
  if (options.kind == "fp16") return std::make_unique<HalfHook>(at::kHalf);
  if (options.kind == "post_local_sgd")
    return std::make_unique<PostLocalSgdHook>(options.start_step);
  if (options.kind == "bf16") return std::make_unique<HalfHook>(at::kBFloat16);
  LOCKSTEP_CHECK(options.kind == "powersgd", "no comm hook " + options.kind);
  return std::make_unique<PowerSgd>(options);
}

}  // namespace lockstep
