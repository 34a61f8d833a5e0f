#include "golden/replay.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "golden/reduction_order.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

// The order in which the gradients of one backward become ready.
class ReadyOrder {
 public:
  ReadyOrder(const NamedTensors& parameters, std::vector<size_t>* order) : parameters_(parameters) {
    for (size_t i = 0; i < parameters.size(); ++i)
      hooks_.push_back(parameters[i].tensor.register_hook(
          [i, order](const at::Tensor&) { order->push_back(i); }));
  }
  ~ReadyOrder() {
    for (size_t i = 0; i < hooks_.size(); ++i) parameters_[i].tensor.remove_hook(hooks_[i]);
  }
  ReadyOrder(const ReadyOrder&) = delete;
  ReadyOrder& operator=(const ReadyOrder&) = delete;

 private:
  const NamedTensors& parameters_;
  std::vector<unsigned> hooks_;
};

std::vector<size_t> registration_order(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

Replay::Replay(const ReplayRule& rule, const Part& loss, const std::string& zero_grad,
               int64_t world_size, Training& training)
    : rule_(rule),
      loss_(loss),
      zero_grad_(zero_grad),
      world_size_(world_size),
      training_(training),
      places_(training.parameters.size()) {
  LOCKSTEP_CHECK(training.buffers.empty(), "buffers differ from rank to rank: not replayed");
  for (const NamedTensor& parameter : training.parameters) {
    elements_ += parameter.tensor.numel();
    wide_ = parameter.tensor.scalar_type() == at::kDouble;
    LOCKSTEP_CHECK(
        parameter.tensor.scalar_type() == training.parameters.front().tensor.scalar_type(),
        "parameters of several dtypes are not replayed");
  }
  flat_.resize(static_cast<size_t>(world_size) + 1);
  for (auto& storage : flat_) storage.resize(static_cast<size_t>(elements_) * (wide_ ? 8 : 4));
  lay_out(first_layout());
}

void Replay::average(int64_t step, const std::vector<Batch>& shards,
                     const std::function<void(int64_t)>& visit) {
  LOCKSTEP_CHECK(static_cast<int64_t>(shards.size()) == world_size_, "one shard per rank");
  const std::string& division = step == 1 ? rule_.division_first_step : rule_.division_later;
  const bool rebuilds = rule_.layout == "ddp" && rule_.rebuild;
  if (rebuilds && step > 1 && !rebuilt_) {
    lay_out(greedy(ready_order_));
    rebuilt_ = true;
  }
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    if (rebuilds && rank == 0 && ready_order_.empty()) {
      const ReadyOrder watch(training_.parameters, &ready_order_);
      backward(step, rank, shards[0]);
    } else {
      backward(step, rank, shards[static_cast<size_t>(rank)]);
    }
    if (visit) visit(rank);
    wide_ ? take<double>(rank, division) : take<float>(rank, division);
  }
  wide_ ? put<double>(division) : put<float>(division);
}

void Replay::backward(int64_t step, int64_t rank, const Batch& shard) {
  // Each rank's gradients were undefined before its first step; later they are the averaged ones
  // of the step before, whichever way they are cleared.
  clear_gradients(training_.parameters, step == 1 ? "none" : zero_grad_);
  const at::Tensor output = training_.model->forward(shard.input);
  loss_of(loss_, output, shard.target, world_size_).backward();
  for (const NamedTensor& parameter : training_.parameters)
    LOCKSTEP_CHECK(parameter.tensor.grad().defined() && parameter.tensor.grad().is_contiguous(),
                   "rank " + std::to_string(rank) + " has no gradient of " + parameter.name);
}

std::vector<std::vector<size_t>> Replay::first_layout() const {
  const std::vector<size_t> all = registration_order(places_.size());
  if (rule_.layout == "one_bucket") return {all};
  if (rule_.layout == "ddp")
    return rule_.rebuild ? std::vector<std::vector<size_t>>{all} : greedy(all);
  LOCKSTEP_CHECK(rule_.layout == "registration", "no layout " + rule_.layout);
  std::vector<std::vector<size_t>> buckets;
  for (size_t i : all) buckets.push_back({i});
  return buckets;
}

// A bucket is closed when its size has reached the limit: of the first one, then of all others.
std::vector<std::vector<size_t>> Replay::greedy(const std::vector<size_t>& order) const {
  std::vector<std::vector<size_t>> buckets;
  int64_t open_bytes = -1;
  for (size_t i : order) {
    if (open_bytes < 0) {
      buckets.emplace_back();
      open_bytes = 0;
    }
    buckets.back().push_back(i);
    open_bytes += static_cast<int64_t>(training_.parameters[i].tensor.nbytes());
    const int64_t limit = buckets.size() == 1 ? rule_.first_bucket_bytes : rule_.bucket_cap_bytes;
    if (open_bytes >= limit) open_bytes = -1;
  }
  return buckets;
}

void Replay::lay_out(const std::vector<std::vector<size_t>>& buckets) {
  buckets_.clear();
  int64_t end = 0;
  for (const std::vector<size_t>& parameters : buckets) {
    Bucket bucket{.begin = end};
    for (size_t i : parameters) {
      places_[i] = end;
      end += training_.parameters[i].tensor.numel();
    }
    bucket.count = end - bucket.begin;
    buckets_.push_back(bucket);
  }
  LOCKSTEP_CHECK(end == elements_, "a bucket layout without all parameters");
}

template <class T>
void Replay::take(int64_t rank, const std::string& division) {
  T* flat = reinterpret_cast<T*>(flat_[static_cast<size_t>(rank)].data());
  // As LibTorch does it: the reciprocal is rounded to double, then to the gradients' dtype.
  const auto reciprocal = static_cast<T>(1.0 / static_cast<double>(world_size_));
  const auto ranks = static_cast<T>(world_size_);
  for (size_t i = 0; i < places_.size(); ++i) {
    const at::Tensor& gradient = training_.parameters[i].tensor.grad();
    const T* local = gradient.data_ptr<T>();
    T* out = flat + places_[i];
    const int64_t count = gradient.numel();
    if (division == "multiply_before") {
      for (int64_t e = 0; e < count; ++e) out[e] = local[e] * reciprocal;
    } else if (division == "divide_before") {
      for (int64_t e = 0; e < count; ++e) out[e] = local[e] / ranks;
    } else {
      LOCKSTEP_CHECK(division == "divide_after", "no division " + division);
      std::copy_n(local, count, out);
    }
  }
}

template <class T>
void Replay::put(const std::string& division) {
  T* sums = reinterpret_cast<T*>(flat_.back().data());
  std::vector<const T*> inputs(static_cast<size_t>(world_size_));
  for (const Bucket& bucket : buckets_) {
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      inputs[rank] = reinterpret_cast<const T*>(flat_[rank].data()) + bucket.begin;
    sum_in_order<T>(rule_.algorithm, inputs, bucket.count, sums + bucket.begin);
  }
  if (division == "divide_after")
    for (int64_t e = 0; e < elements_; ++e) sums[e] = sums[e] / static_cast<T>(world_size_);
  for (size_t i = 0; i < places_.size(); ++i) {
    const at::Tensor& gradient = training_.parameters[i].tensor.grad();
    std::copy_n(sums + places_[i], gradient.numel(), gradient.data_ptr<T>());
  }
}

}  // namespace lockstep
