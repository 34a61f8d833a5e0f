#include "golden/replay_buckets.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "golden/half_types.h"
#include "golden/reduction_order.h"
#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep {
namespace {

const std::string kAfter = "divide_after";
const std::string kWhole = "none";

template <class T>
void add_as(const std::string& algorithm, const std::vector<at::Tensor>& given, at::Tensor* sum) {
  std::vector<const T*> inputs;
  for (const at::Tensor& one : given) inputs.push_back(static_cast<const T*>(one.data_ptr()));
  sum_in_order<T>(algorithm, inputs, sum->numel(), static_cast<T*>(sum->data_ptr()));
}

}  // namespace

void add_in_order(const std::string& algorithm, const std::vector<at::Tensor>& given,
                  at::Tensor* sum) {
  switch (sum->scalar_type()) {
    case at::kFloat:
      return add_as<float>(algorithm, given, sum);
    case at::kDouble:
      return add_as<double>(algorithm, given, sum);
    case at::kHalf:
      return add_as<Float16>(algorithm, given, sum);
    case at::kBFloat16:
      return add_as<Brain16>(algorithm, given, sum);
    default:
      LOCKSTEP_CHECK(false, std::string("gradients of type ") + c10::toString(sum->scalar_type()));
  }
}

ReplayBuckets::ReplayBuckets(const ReplayRule& rule, const NamedTensors& parameters, int64_t ranks)
    : rule_(rule),
      parameters_(parameters),
      ranks_(ranks),
      divisor_(ranks),
      places_(parameters.size()) {
  lay_out_first();
}

std::vector<size_t> ReplayBuckets::trained() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].tensor.requires_grad()) order.push_back(i);
  return order;
}

ReplayBuckets::Key ReplayBuckets::key_of(size_t parameter) const {
  const NamedTensor& named = parameters_[parameter];
  const auto& modules = rule_.wrapped_modules;
  const auto module = std::find_if(modules.begin(), modules.end(), [&](const std::string& name) {
    return is_named_in({name}, named.name);
  });
  return {named.tensor.scalar_type(), named.device, static_cast<size_t>(module - modules.begin())};
}

bool ReplayBuckets::is_ignored(size_t parameter) const {
  return is_named_in(rule_.ignored, parameters_[parameter].name);
}

bool ReplayBuckets::stands_alone(size_t parameter) const {
  return parameters_[parameter].sparse_gradient || is_ignored(parameter);
}

void ReplayBuckets::lay_out_first() {
  if (rule_.layout == "registration") {
    std::vector<std::vector<size_t>> buckets;
    for (size_t i : trained()) buckets.push_back({i});
    return lay_out(buckets);
  }
  LOCKSTEP_CHECK(rule_.layout == "one_bucket" || rule_.layout == "ddp",
                 "no layout " + rule_.layout);
  const bool whole = rule_.layout == "one_bucket" || rule_.rebuild;
  auto buckets = whole ? one_per_key() : greedy(trained());
  // The last parameters' gradients are expected first.
  std::sort(buckets.begin(), buckets.end(),
            [](const auto& a, const auto& b) { return a.front() > b.front(); });
  lay_out(buckets);
}

void ReplayBuckets::lay_out_again(std::vector<size_t> ready_order) {
  for (size_t i : trained())
    if (std::find(ready_order.begin(), ready_order.end(), i) == ready_order.end())
      ready_order.push_back(i);
  lay_out(greedy(ready_order));
}

std::vector<std::vector<size_t>> ReplayBuckets::one_per_key() const {
  std::map<Key, std::vector<size_t>> by_key;
  std::vector<std::vector<size_t>> buckets;
  for (size_t i : trained())
    if (stands_alone(i))
      buckets.push_back({i});
    else
      by_key[key_of(i)].push_back(i);
  for (auto& [key, bucket] : by_key) buckets.push_back(std::move(bucket));
  return buckets;
}

// Of each key: a bucket is closed when its size has reached the limit, of the first one, then of
// all others. What is left over follows, the key that came last first, as LibTorch does it. Which
// bucket comes first decides nothing about sums, but where a comm hook asks for it.
std::vector<std::vector<size_t>> ReplayBuckets::greedy(const std::vector<size_t>& order) const {
  struct Open {
    std::vector<size_t> parameters;
    int64_t bytes = 0;
    bool first = true;
  };
  std::map<Key, Open> open;
  std::vector<Key> keys;  // as they came
  std::vector<std::vector<size_t>> buckets;
  for (size_t i : order) {
    const at::Tensor& parameter = parameters_[i].tensor;
    if (stands_alone(i)) {
      buckets.push_back({i});
      continue;
    }
    const Key key = key_of(i);
    if (!open.contains(key)) keys.push_back(key);
    Open& bucket = open[key];
    bucket.parameters.push_back(i);
    bucket.bytes += static_cast<int64_t>(parameter.nbytes());
    if (bucket.bytes < (bucket.first ? rule_.first_bucket_bytes : rule_.bucket_cap_bytes)) continue;
    buckets.push_back(std::move(bucket.parameters));
    bucket = Open{};
    bucket.first = false;
  }
  for (auto key = keys.rbegin(); key != keys.rend(); ++key)
    if (!open[*key].parameters.empty()) buckets.push_back(std::move(open[*key].parameters));
  return buckets;
}

void ReplayBuckets::lay_out(const std::vector<std::vector<size_t>>& buckets) {
  buckets_.clear();
  for (const std::vector<size_t>& parameters : buckets) {
    Bucket bucket;
    bucket.parameters = parameters;
    bucket.by_hand = is_ignored(parameters.front());
    int64_t elements = 0;
    for (size_t i : parameters) {
      places_[i] = {buckets_.size(), elements};
      elements += parameters_[i].tensor.numel();
    }
    if (rule_.padded) elements = (elements + ranks_ - 1) / ranks_ * ranks_;
    at::ScalarType type = parameters_[parameters.front()].tensor.scalar_type();
    if (rule_.added_as == "float16" && !bucket.by_hand) type = at::kHalf;
    if (rule_.added_as == "bfloat16" && !bucket.by_hand) type = at::kBFloat16;
    for (int64_t rank = 0; rank < ranks_; ++rank)
      bucket.of_rank.push_back(at::zeros({elements}, type));
    bucket.sum = at::zeros({elements}, type);
    if (parameters_[parameters.front()].sparse_gradient)
      bucket.rows = at::zeros({parameters_[parameters.front()].tensor.size(0)}, at::kBool);
    buckets_.push_back(std::move(bucket));
  }
  number();
}

void ReplayBuckets::number() {
  std::map<size_t, int64_t> of_module;
  for (Bucket& bucket : buckets_)
    if (!bucket.by_hand) bucket.index = of_module[std::get<2>(key_of(bucket.parameters.front()))]++;
}

// A view of a bucket in the shape of a parameter. Elements have the order that the parameter's have
// in memory, if they fill theirs without gaps: where an element lies decides what it is added from.
at::Tensor ReplayBuckets::place_in(const at::Tensor& flat, size_t parameter) const {
  const at::Tensor& like = parameters_[parameter].tensor;
  return like.is_non_overlapping_and_dense()
             ? flat.as_strided(like.sizes(), like.strides(), places_[parameter].offset)
             : shaped_in(flat, parameter);
}

// The same elements, contiguous, whatever the parameter's strides.
at::Tensor ReplayBuckets::shaped_in(const at::Tensor& flat, size_t parameter) const {
  const at::Tensor& like = parameters_[parameter].tensor;
  return flat.narrow(0, places_[parameter].offset, like.numel()).view(like.sizes());
}

// LibTorch's own arithmetic of one operation: half types round in a way of its own.
at::Tensor ReplayBuckets::divided(const at::Tensor& gradient, const std::string& division) const {
  const auto divisor = static_cast<double>(divisor_);
  if (division == "multiply_before")
    return at::mul(gradient, at::native::wrapped_scalar_tensor(1.0 / divisor));
  if (division == "divide_before")
    return at::div(gradient, at::native::wrapped_scalar_tensor(divisor));
  LOCKSTEP_CHECK(division == kAfter || division == kWhole, "no division " + division);
  return gradient;
}

void ReplayBuckets::take(int64_t rank, const std::vector<bool>& later) {
  const c10::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    if (bucket.rows.defined()) {
      take_sparse(rank, bucket);
      continue;
    }
    const at::Tensor& flat = bucket.of_rank[static_cast<size_t>(rank)];
    for (size_t i : bucket.parameters) {
      at::Tensor place = place_in(flat, i);
      const at::Tensor& gradient = parameters_[i].tensor.grad();
      const std::string& ours = later[i] ? rule_.division_later : rule_.division_first_step;
      const std::string& division = bucket.by_hand ? kAfter : is_compressed(bucket) ? kWhole : ours;
      if (!gradient.defined())
        place.zero_();
      else
        place.copy_(divided(gradient.to(flat.scalar_type()), division));
    }
  }
}

void ReplayBuckets::take_sparse(int64_t rank, Bucket& bucket) {
  const at::Tensor& gradient = parameters_[bucket.parameters.front()].tensor.grad();
  at::Tensor flat = bucket.of_rank[static_cast<size_t>(rank)].zero_();
  if (rank == 0) bucket.rows.zero_();
  if (!gradient.defined()) return;
  const bool after = bucket.by_hand || rule_.division_later == kAfter;
  const at::Tensor own = (after ? gradient : gradient.div(divisor_)).coalesce();
  flat.copy_(own.to_dense().reshape({-1}));
  bucket.rows.index_fill_(0, own._indices()[0], true);
}

// From zero, so that -0 becomes 0, but for a single rank.
void ReplayBuckets::sum_sparse(Bucket& bucket) {
  if (ranks_ == 1) {
    bucket.sum.copy_(bucket.of_rank.front());
    return;
  }
  bucket.sum.zero_();
  for (const at::Tensor& own : bucket.of_rank) bucket.sum.add_(own);
}

bool ReplayBuckets::is_compressed(const Bucket& bucket) const {
  return compression_ != nullptr && !bucket.by_hand;
}

void ReplayBuckets::compress(Bucket& bucket) {
  // As DDP hands a bucket to a hook: in the parameters' shapes, whatever their strides.
  const auto views_in = [&](const at::Tensor& flat) {
    std::vector<at::Tensor> views;
    for (size_t i : bucket.parameters) views.push_back(shaped_in(flat, i));
    return views;
  };
  std::vector<std::vector<at::Tensor>> of_ranks;
  for (const at::Tensor& own : bucket.of_rank) of_ranks.push_back(views_in(own));
  compression_->average(bucket.index, of_ranks, views_in(bucket.sum));
}

void ReplayBuckets::sum() {
  const c10::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    if (is_compressed(bucket)) {
      compress(bucket);
      continue;
    }
    if (bucket.rows.defined())
      sum_sparse(bucket);
    else
      add_in_order(rule_.algorithm, bucket.of_rank, &bucket.sum);
    if (bucket.by_hand || rule_.division_later == kAfter) bucket.sum.div_(divisor_);
  }
}

at::Tensor ReplayBuckets::result(size_t parameter) const {
  const at::Tensor& like = parameters_[parameter].tensor;
  const Bucket& bucket = buckets_[places_[parameter].bucket];
  if (bucket.rows.defined()) {
    const at::Tensor rows = bucket.rows.nonzero().squeeze(1);
    return at::sparse_coo_tensor(rows.unsqueeze(0),
                                 bucket.sum.view(like.sizes()).index_select(0, rows), like.sizes())
        .coalesce();
  }
  return place_in(bucket.sum, parameter).to(like.scalar_type());
}

}  // namespace lockstep
