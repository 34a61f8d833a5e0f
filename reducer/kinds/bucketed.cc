#include "reducer/kinds/bucketed.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <algorithm>
#include <stdexcept>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"

namespace lockstep {

BucketStorage::BucketStorage(const BucketLayout& layout, const std::vector<at::Tensor>& parameters,
                             const std::vector<bool>& sparse, Communicator& communicator,
                             int64_t multiple)
    : views_(parameters.size()), bucket_of_(parameters.size()) {
  for (size_t b = 0; b < layout.size(); ++b) {
    const auto only = static_cast<size_t>(layout[b].front());
    if (sparse[only]) {
      flat_.emplace_back();
      bucket_of_[only] = b;
      continue;
    }
    int64_t elements = 0;
    for (int64_t p : layout[b]) elements += parameters[static_cast<size_t>(p)].numel();
    elements = (elements + multiple - 1) / multiple * multiple;
    const at::Tensor& first = parameters[only];
    // What a communicator hands out is the host's.
    flat_.push_back(first.device().is_cpu()
                        ? communicator.allocate(elements, first.scalar_type())
                        : at::zeros({elements}, first.options().requires_grad(false)));
    int64_t offset = 0;
    for (int64_t p : layout[b]) {
      const at::Tensor& parameter = parameters[static_cast<size_t>(p)];
      // Gradients have their parameter's strides where those are dense.
      views_[static_cast<size_t>(p)] =
          parameter.is_non_overlapping_and_dense()
              ? flat_[b].as_strided(parameter.sizes(), parameter.strides(), offset)
              : flat_[b].narrow(0, offset, parameter.numel()).view(parameter.sizes());
      bucket_of_[static_cast<size_t>(p)] = b;
      offset += parameter.numel();
    }
  }
}

std::vector<at::Tensor> BucketStorage::by_parameter(const BucketLayout& layout,
                                                    size_t bucket) const {
  std::vector<at::Tensor> gradients;
  int64_t offset = 0;
  for (const int64_t p : layout[bucket]) {
    const at::Tensor& view = views_[static_cast<size_t>(p)];
    gradients.push_back(flat_[bucket].narrow(0, offset, view.numel()).view(view.sizes()));
    offset += view.numel();
  }
  return gradients;
}

void StepTimes::forward_begins() { forward_ = now_ns(); }
void StepTimes::backward_begins() {
  backward_ = gradient_ = now_ns();
  bucket_ = 0;
}
void StepTimes::first_bucket() { bucket_ = now_ns(); }
void StepTimes::last_gradient() { gradient_ = now_ns(); }

void StepTimes::ends() {
  const int64_t end = now_ns();
  const int64_t bucket = bucket_ > 0 ? bucket_ : end;
  ++steps_;
  forward_ns_ += backward_ - forward_;
  backward_ns_ += gradient_ - backward_;
  comm_ns_ += end - bucket;
  overlap_ns_ += std::max<int64_t>(0, gradient_ - bucket);
}

void StepTimes::fill(ReducerData* data) const {
  if (steps_ == 0) return;
  data->forward_ns = forward_ns_ / steps_;
  data->backward_ns = backward_ns_ / steps_;
  data->comm_ns = comm_ns_ / steps_;
  data->overlap_ns = overlap_ns_ / steps_;
}

ReducerData& ReducerData::operator+=(const ReducerData& next) {
  const auto append = [](std::vector<int64_t>* to, const std::vector<int64_t>& from) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(&bucket_bytes, next.bucket_bytes);
  append(&rebuilt_bucket_bytes, next.rebuilt_bucket_bytes);
  parameters += next.parameters;
  parameter_bytes += next.parameter_bytes;
  unused_parameter_bytes += next.unused_parameter_bytes;
  forward_ns += next.forward_ns;
  backward_ns += next.backward_ns;
  comm_ns += next.comm_ns;
  overlap_ns += next.overlap_ns;
  return *this;
}

BucketedReducer::BucketedReducer(const ReducerOptions& options, const NamedTensors& parameters,
                                 const NamedTensors& buffers, Communicator& communicator,
                                 Probe& probe)
    : ReducerBase(options, parameters, buffers, communicator, probe),
      policy_(bucket_policy(options, trained_)),
      comm_hook_(make_comm_hook(options.comm_hook)),
      uses_(trained_.tensors.size(), 0),
      used_(trained_.tensors.size(), false) {
  const bool any_sparse =
      std::find(trained_.sparse.begin(), trained_.sparse.end(), true) != trained_.sparse.end();
  LOCKSTEP_CHECK(comm_hook_ == nullptr || !any_sparse, "a comm hook takes dense buckets");
  use_layout(policy_.layout);
  first_bucket_bytes_ = bytes_of(policy_.layout);
  hooks_ = std::make_unique<GradientHooks>(trained_.tensors, [this](size_t place) { hook(place); });
}

void BucketedReducer::use_layout(BucketLayout layout) {
  policy_.layout = std::move(layout);
  if (!policy_.bucket_view) storage_ = BucketStorage();  // never two copies beside the gradients
  BucketStorage storage(policy_.layout, trained_.tensors, trained_.sparse, communicator_);
  for (size_t p = 0; policy_.bucket_view && p < trained_.tensors.size(); ++p) {
    at::Tensor& gradient = trained_.tensors[p].mutable_grad();
    if (!gradient.defined() || trained_.sparse[p]) continue;
    storage.view(p).copy_(gradient);
    gradient = storage.view(p);
  }
  storage_ = std::move(storage);
  registered_layout_ = announce(policy_.layout);
}

void BucketedReducer::rebuild() {
  rebuilt_ = true;
  const auto count = static_cast<int64_t>(trained_.tensors.size());
  for (int64_t p = 0; p < count; ++p) {  // unused in the first step
    if (std::find(ready_order_.begin(), ready_order_.end(), p) == ready_order_.end()) {
      ready_order_.push_back(p);
    }
  }
  at::Tensor order = at::empty({count}, at::kLong);
  std::copy(ready_order_.begin(), ready_order_.end(), order.data_ptr<int64_t>());
  communicator_.broadcast(order, 0, collective_deadline())->wait();
  const int64_t* first = order.data_ptr<int64_t>();
  use_layout(rebuilt_layout(bucket_items(trained_), {first, first + count},
                            options_.first_bucket_bytes, options_.bucket_cap_bytes));
}

void BucketedReducer::renew_layout() {
  if (policy_.rebuild && !rebuilt_ && !ready_order_.empty()) rebuild();
}

void BucketedReducer::before_forward(bool synchronizes) {
  c10::NoGradGuard no_grad;
  times_.forward_begins();
  announce_batch(synchronizes);
  renew_layout();
  share_buffers(synchronizes);
}

void BucketedReducer::before_backward(const std::vector<at::Tensor>& outputs) {
  const size_t count = trained_.tensors.size();
  pending_.clear();
  for (const auto& bucket : policy_.layout) pending_.push_back(bucket.size());
  launched_ = 0;
  works_.clear();
  finishes_.clear();
  ++step_;
  used_work_ = nullptr;
  ready_.assign(count, false);
  uses_left_ = uses_;
  if (!policy_.count_uses) {
    unused_.clear();
    if (policy_.search_unused) unused_ = hooks_->unreached_from(outputs);
  }
  unused_marked_ = counts_uses_now();
  times_.backward_begins();
  expecting_ = true;
}

void BucketedReducer::hook(size_t place) {
  std::lock_guard lock(mutex_);
  used_[place] = used_[place] || trained_.tensors[place].grad().defined();
  if (!expecting_) return;
  c10::NoGradGuard no_grad;
  if (!std::exchange(unused_marked_, true)) {
    for (size_t unused : unused_) mark_ready(unused);
  }
  if (counts_uses_now()) {
    if (++uses_[place] > 1) return;
  } else if (policy_.count_uses && --uses_left_[place] > 0) {
    return;
  }
  if (ready_[place]) {
    throw std::runtime_error("gradient of " + trained_.names[place] +
                             " became ready twice in one step");
  }
  probe_.parameter_ready(trained_.registration[place]);
  if (policy_.rebuild && !rebuilt_) ready_order_.push_back(static_cast<int64_t>(place));
  if (!counts_uses_now()) mark_ready(place);
  times_.last_gradient();
}

// The first step of a static graph: what has no gradient by now is unused in all that follow.
void BucketedReducer::mark_all_ready() {
  for (size_t place = 0; place < uses_.size(); ++place) {
    if (uses_[place] == 0) unused_.push_back(place);
    mark_ready(place);
  }
}

void BucketedReducer::mark_ready(size_t place) {
  ready_[place] = true;
  copy_in(place);
  const size_t bucket = storage_.bucket_of(place);
  if (--pending_[bucket] > 0) return;
  probe_.bucket_ready(static_cast<int64_t>(bucket));
  launch_ready_buckets();
}

void BucketedReducer::divide_sparse(size_t place) {
  at::Tensor gradient = trained_.tensors[place].grad();
  if (!gradient.defined() || !gradient.is_sparse())
    throw std::runtime_error("expected a sparse gradient of " + trained_.names[place] +
                             (gradient.defined() ? ", it has a dense one" : ", it has none"));
  gradient.div_(world_size_);
}

// What is summed.
const at::Tensor& BucketedReducer::bucket_tensor(size_t bucket) const {
  const auto first = static_cast<size_t>(policy_.layout[bucket].front());
  return trained_.sparse[first] ? trained_.tensors[first].grad() : storage_.flat(bucket);
}

void BucketedReducer::copy_in(size_t place) {
  if (trained_.sparse[place]) return divide_sparse(place);
  at::Tensor& gradient = trained_.tensors[place].mutable_grad();
  at::Tensor view = storage_.view(place);
  const int64_t ranks = divisor();
  const auto wide = static_cast<double>(ranks);
  if (!gradient.defined()) {
    view.zero_();
  } else if (gradient.is_alias_of(view)) {
    if (comm_hook_ == nullptr) view.div_(ranks);
  } else {
    if (comm_hook_ != nullptr) {
      view.copy_(gradient);
    } else if (policy_.divide) {
      at::div_out(view, gradient, at::native::wrapped_scalar_tensor(wide));
    } else {
      at::mul_out(view, gradient, at::native::wrapped_scalar_tensor(1.0 / wide));
    }
    if (policy_.bucket_view) gradient = view;
  }
}

// In index order: a bucket that is ready early waits, so that all ranks call alike.
void BucketedReducer::launch_ready_buckets() {
  for (; launched_ < pending_.size() && pending_[launched_] == 0; ++launched_) {
    if (launched_ == 0) times_.first_bucket();
    if (comm_hook_ != nullptr)
      start_hook(storage_, launched_);
    else
      works_.push_back(all_reduce(bucket_tensor(launched_)));
  }
  if (policy_.search_unused && launched_ == pending_.size()) reduce_used_map();
}

void BucketedReducer::start_hook(BucketStorage& storage, size_t bucket) {
  const HookBucket given{.step = step_,
                         .index = static_cast<int64_t>(bucket),
                         .is_last = bucket + 1 == policy_.layout.size(),
                         .gradients = storage.flat(bucket),
                         .by_parameter = storage.by_parameter(policy_.layout, bucket)};
  finishes_.push_back(comm_hook_->start(given, hook_group()));
}

// Waits until the bucket holds its averages.
void BucketedReducer::finish(BucketStorage& storage, size_t bucket) {
  if (comm_hook_ == nullptr) return works_[bucket]->wait();
  at::Tensor flat = storage.flat(bucket);
  const at::Tensor averaged = finishes_[bucket]();
  if (!averaged.is_same(flat)) flat.copy_(averaged);
}

void BucketedReducer::reduce_used_map() {
  used_map_ = at::zeros({static_cast<int64_t>(used_.size())}, at::kInt);
  std::copy(used_.begin(), used_.end(), used_map_.data_ptr<int32_t>());
  used_.assign(used_.size(), false);
  used_work_ = all_reduce(used_map_);
}

// Its own gradients stay as they are: they may be views into the buckets.
void BucketedReducer::shadow_backward() {
  BucketStorage zeros(policy_.layout, trained_.tensors, trained_.sparse, communicator_);
  ++step_;
  works_.clear();
  finishes_.clear();
  for (size_t b = 0; b < policy_.layout.size(); ++b) {
    if (comm_hook_ != nullptr)
      start_hook(zeros, b);
    else
      works_.push_back(all_reduce(zeros.flat(b)));
  }
  const at::Tensor none_used = at::zeros({static_cast<int64_t>(used_.size())}, at::kInt);
  const CommWorkPtr used = policy_.search_unused ? all_reduce(none_used) : nullptr;
  for (size_t b = 0; b < policy_.layout.size(); ++b) finish(zeros, b);
  if (used != nullptr) used->wait();
}

bool BucketedReducer::is_unused_everywhere(size_t place) {
  return policy_.search_unused && used_map_.data_ptr<int32_t>()[place] == 0;
}

void BucketedReducer::write_back_bucket(size_t bucket) {
  for (const int64_t place : policy_.layout[bucket]) write_back(static_cast<size_t>(place));
}

void BucketedReducer::write_back(size_t place) {
  if (trained_.sparse[place] || is_unused_everywhere(place)) return;
  at::Tensor& gradient = trained_.tensors[place].mutable_grad();
  const at::Tensor& view = storage_.view(place);
  if (policy_.bucket_view) {
    if (gradient.defined() && !gradient.is_alias_of(view)) {
      throw std::runtime_error("gradient of " + trained_.names[place] +
                               " is no longer a view into its bucket");
    }
    gradient = view;
  } else if (gradient.defined()) {
    gradient.copy_(view);
  } else {
    gradient = torch::autograd::utils::clone_obey_contract(view, trained_.tensors[place]);
  }
}

void BucketedReducer::after_backward() {
  std::lock_guard lock(mutex_);
  if (!expecting_) return;
  c10::NoGradGuard no_grad;
  expecting_ = false;
  if (!std::exchange(unused_marked_, true)) {
    for (size_t unused : unused_) mark_ready(unused);
  }
  if (counts_uses_now()) mark_all_ready();
  need_gradients([&](size_t place) { return ready_[place]; });
  // A caller that went on although its backward had thrown.
  if (launched_ < pending_.size())
    throw std::runtime_error("a bucket was never launched: its backward failed");
  for (size_t b = 0; b < policy_.layout.size(); ++b) {
    finish(storage_, b);
    if (policy_.write_back_early) write_back_bucket(b);
  }
  if (policy_.write_back_early) return times_.ends();
  if (used_work_ != nullptr) used_work_->wait();
  times_.ends();
  for (size_t b = 0; b < policy_.layout.size(); ++b) write_back_bucket(b);
}

ReducerData BucketedReducer::data() {
  ReducerData data = data_of_parameters();
  data.bucket_bytes = first_bucket_bytes_;
  if (rebuilt_) data.rebuilt_bucket_bytes = bytes_of(policy_.layout);
  for (const size_t place : unused_)
    data.unused_parameter_bytes += static_cast<int64_t>(trained_.tensors[place].nbytes());
  times_.fill(&data);
  return data;
}

}  // namespace lockstep
