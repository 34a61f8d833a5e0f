#include "reducer/kinds/invariant.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <algorithm>
#include <stdexcept>

#include "reducer/base/parameter_sync.h"
#include "reducer/comm/collective.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

}  // namespace

InvariantReducer::InvariantReducer(const ReducerOptions& options, const NamedTensors& parameters,
                                   const NamedTensors& buffers, Communicator& communicator,
                                   Probe& probe)
    : ReducerBase(options, parameters, buffers, communicator, probe),
      range_(shards_of_rank(options.virtual_shards, world_size_, communicator.rank())),
      rows_(most_roots(options.virtual_shards, world_size_)),
      buffers_(tensors_of(buffers)),
      turns_(options.shards_together ? static_cast<size_t>(range_.size()) : 1),
      used_(trained_.tensors.size(), false) {
  LOCKSTEP_CHECK(options.virtual_shards >= world_size_, "a rank without a virtual shard");
  if (std::find(trained_.sparse.begin(), trained_.sparse.end(), true) != trained_.sparse.end())
    throw std::runtime_error(
        "reducer invariant adds dense gradients, and the model has a sparse one");
  if (!buffers_.empty() && !options.broadcast_buffers)
    throw std::runtime_error("reducer invariant gives every rank the buffers of shard 0's forward");
  for (int64_t rank = 0; rank < world_size_; ++rank)
    roots_.push_back(roots_of(shards_of_rank(options.virtual_shards, world_size_, rank),
                              options.virtual_shards));
  lay_out();
  hooks_ = std::make_unique<GradientHooks>(trained_.tensors, [this](size_t place) { hook(place); });
}

InvariantReducer::~InvariantReducer() { drop_turns(); }

void InvariantReducer::lay_out() {
  const BucketLayout layout = layout_at_construction(
      bucket_items(trained_), false, options_.first_bucket_bytes, options_.bucket_cap_bytes);
  bucket_of_.resize(trained_.tensors.size());
  offset_.resize(trained_.tensors.size());
  buckets_.reserve(layout.size());  // trees keep where their bucket lies
  for (const std::vector<int64_t>& places : layout) {
    const size_t index = buckets_.size();
    int64_t elements = 0;
    for (const int64_t place : places) {
      bucket_of_[static_cast<size_t>(place)] = index;
      offset_[static_cast<size_t>(place)] = elements;
      elements += trained_.tensors[static_cast<size_t>(place)].numel();
    }
    const auto add = [this, index](at::Tensor left, const at::Tensor& right) {
      left.add_(right);
      buckets_[index].spare.push_back(right);
      return left;
    };
    const at::Tensor& first = trained_.tensors[static_cast<size_t>(places.front())];
    buckets_.push_back({.places = places,
                        .elements = (elements + world_size_ - 1) / world_size_ * world_size_,
                        .options = first.options().requires_grad(false),
                        .tree = {options_.virtual_shards, add},
                        .shard = std::vector<at::Tensor>(turns_.size()),
                        .filled = std::vector<size_t>(turns_.size())});
  }
  registered_layout_ = announce(layout);
}

// A gradient has its parameter's strides where those are dense.
at::Tensor InvariantReducer::view(const at::Tensor& flat, size_t place) const {
  const at::Tensor& parameter = trained_.tensors[place];
  return fills_memory(parameter)
             ? flat.as_strided(parameter.sizes(), parameter.strides(),
                               flat.storage_offset() + offset_[place])
             : flat.narrow(0, offset_[place], parameter.numel()).view(parameter.sizes());
}

int64_t InvariantReducer::shard() const {
  if (options_.shards_together) return range_.begin + static_cast<int64_t>(turn_);
  return range_.begin + (micro_batches_ - 1) / options_.micro_batches_per_shard;
}

// Is the micro-batch that has begun the last one of this rank's step?
bool InvariantReducer::is_synchronized() const {
  const int64_t of_turn = options_.shards_together ? 1 : range_.size();
  return turn_ == last_turn() && micro_batches_ == of_turn * options_.micro_batches_per_shard;
}

void InvariantReducer::before_forward(bool synchronizes) {
  const c10::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  const bool next_shard = micro_batches_ > 0 && ends_shard() && !options_.shards_together;
  if (next_shard) close_shard();
  share_buffers(synchronizes);
  if (micro_batches_ == 0 && turn_ == 0)
    begin_step();
  else if (next_shard)
    begin_shard();
  ++micro_batches_;
  if (synchronizes != is_synchronized())
    throw std::runtime_error(fmt::format(
        "rank {} has {} virtual shards of {} micro-batches in a step, of which the last alone is "
        "synchronized: this is number {}",
        communicator_.rank(), range_.size(), options_.micro_batches_per_shard, micro_batches_));
}

void InvariantReducer::begin_step() {
  times_.forward_begins();
  found_.clear();
  for (const at::Tensor& parameter : trained_.tensors)
    found_.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
  start_buffers_ = copies_of(buffers_);
  first_buffers_.clear();
  taken_.assign(trained_.tensors.size(), false);
  used_.assign(trained_.tensors.size(), false);
  unused_.clear();
  launched_ = 0;
  if (options_.shards_together) begin_turns();
}

// Shard 0's buffers lie where the model's do.
void InvariantReducer::begin_turns() {
  turns_.assign(turns_.size(), {});
  for (Turn& turn : turns_) {
    turn.gradients.resize(trained_.tensors.size());
    turn.taken.assign(trained_.tensors.size(), false);
    if (&turn != &turns_.front()) turn.buffers = copies_of(buffers_);
  }
  for (const at::Tensor& buffer : buffers_) turns_.front().buffers.push_back(buffer.detach());
}

void InvariantReducer::enter_shard(int64_t index) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(index >= 0 && index < static_cast<int64_t>(turns_.size()), "no such shard");
  change_turn(static_cast<size_t>(index));
}

// Tensors keep their identity, which model and optimizer know; what they hold is exchanged.
void InvariantReducer::change_turn(size_t next) {
  if (next == turn_) return;
  const auto exchange_with = [this](Turn& turn) {
    for (size_t place = 0; place < turn.gradients.size(); ++place)
      std::swap(trained_.tensors[place].mutable_grad(), turn.gradients[place]);
    taken_.swap(turn.taken);
    std::swap(micro_batches_, turn.micro_batches);
  };
  exchange_with(turns_[turn_]);
  exchange_with(turns_[next]);
  turn_ = next;
  for (size_t i = 0; i < buffers_.size(); ++i)
    at::Tensor(buffers_[i]).set_data(turns_[turn_].buffers[i]);
}

// What the shards before the last one have left, which is this turn's.
void InvariantReducer::close_turns() {
  for (size_t turn = 0; turn < last_turn(); ++turn) {
    change_turn(turn);
    close_shard();
  }
  change_turn(last_turn());
  mark_unused();
  if (options_.find_unused_parameters) launch_ready_buckets();
}

// The model has its own buffers again, with what shard 0 made of them.
void InvariantReducer::drop_turns() {
  if (turns_.front().buffers.empty()) return;
  for (size_t i = 0; i < buffers_.size(); ++i)
    at::Tensor(buffers_[i]).set_data(turns_.front().buffers[i]);
  turns_.assign(turns_.size(), {});
  turn_ = 0;
}

// The second and later ones of a rank.
void InvariantReducer::begin_shard() {
  if (first_buffers_.empty()) first_buffers_ = copies_of(buffers_);
  restore_buffers(start_buffers_);
}

void InvariantReducer::restore_buffers(const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) at::Tensor(buffers_[i]).copy_(values[i]);
}

// Without backward's help: parameters that this shard has not used.
void InvariantReducer::close_shard() {
  if (!options_.find_unused_parameters) need_gradients([&](size_t place) { return taken_[place]; });
  for (size_t place = 0; place < taken_.size(); ++place)
    if (!taken_[place]) take(place);
  taken_.assign(taken_.size(), false);
}

void InvariantReducer::before_backward(const std::vector<at::Tensor>& outputs) {
  if (options_.find_unused_parameters) unused_ = hooks_->unreached_from(outputs);
  unused_marked_ = false;
  synchronizes_ = true;
  times_.backward_begins();
}

void InvariantReducer::hook(size_t place) {
  const std::lock_guard lock(mutex_);
  if (micro_batches_ == 0 || !ends_shard()) return;
  const c10::NoGradGuard no_grad;
  if (taken_[place])
    throw std::runtime_error("gradient of " + trained_.names[place] +
                             " became ready twice in one virtual shard");
  if (synchronizes_ && turn_ == last_turn()) {
    if (!options_.shards_together) mark_unused();
    probe_.parameter_ready(trained_.registration[place]);
  }
  take(place);
  if (synchronizes_) times_.last_gradient();
}

void InvariantReducer::mark_unused() {
  if (std::exchange(unused_marked_, true)) return;
  for (const size_t place : unused_)
    if (!taken_[place]) take(place);
}

// Two shards of this rank that the tree adds to each other: the second straight into the first,
// where that is complete.
bool InvariantReducer::has_left_neighbour(int64_t shard) const {
  return !options_.shards_together && shard % 2 == 1 && shard > range_.begin;
}

// The gradient, which may be that of an earlier micro-batch; none: zeros.
void InvariantReducer::take(size_t place) {
  Bucket& bucket = buckets_[bucket_of_[place]];
  at::Tensor& sums = bucket.shard[turn_];
  if (!sums.defined()) {
    sums = bucket.spare.empty() ? memory_of(bucket, bucket.elements) : bucket.spare.back();
    if (!bucket.spare.empty()) bucket.spare.pop_back();
  }
  const at::Tensor gradient = std::exchange(trained_.tensors[place].mutable_grad(), at::Tensor());
  at::Tensor own = view(sums, place);
  if (has_left_neighbour(shard()))
    gradient.defined() ? own.add_(gradient) : own.add_(0);
  else
    gradient.defined() ? own.copy_(gradient) : own.zero_();
  taken_[place] = true;
  used_[place] = used_[place] || gradient.defined();
  if (++bucket.filled[turn_] < bucket.places.size()) return;
  bucket.filled[turn_] = 0;
  ++bucket.shards;
  if (shard() + 1 < range_.end && has_left_neighbour(shard() + 1)) return;
  const ShardNode node =
      has_left_neighbour(shard()) ? ShardNode{1, shard() / 2} : ShardNode{0, shard()};
  bucket.tree.put(node, std::exchange(sums, at::Tensor()));
  if (bucket.shards < range_.size()) return;
  probe_.bucket_ready(static_cast<int64_t>(bucket_of_[place]));
  if (!options_.shards_together || !options_.find_unused_parameters) launch_ready_buckets();
}

// In index order, so that all ranks call alike.
void InvariantReducer::launch_ready_buckets() {
  const auto is_ready = [&](const Bucket& bucket) { return bucket.shards == range_.size(); };
  for (; launched_ < buckets_.size() && is_ready(buckets_[launched_]); ++launched_) {
    if (launched_ == 0) times_.first_bucket();
    launch(buckets_[launched_]);
  }
  if (launched_ == buckets_.size() && options_.find_unused_parameters) tell_used();
}

// Others can read it where it lies, if this communicator has memory of that kind.
at::Tensor InvariantReducer::memory_of(const Bucket& bucket, int64_t elements) const {
  return communicator_.allocate(elements, c10::typeMetaToScalarType(bucket.options.dtype()));
}

void InvariantReducer::launch(Bucket& bucket) {
  bucket.shards = 0;
  bucket.roots = bucket.tree.take();
  LOCKSTEP_CHECK(bucket.roots.size() == roots_[static_cast<size_t>(communicator_.rank())].size(),
                 "not the roots of this rank's shards");
  if (world_size_ == 1) return;
  if (!exchanges_parts()) {
    bucket.work = all_reduce(bucket.roots.front().second);
    return;
  }
  const int64_t part = bucket.elements / world_size_;
  if (!bucket.exchanged.defined())
    bucket.exchanged =
        memory_of(bucket, world_size_ * rows_ * part).view({world_size_, rows_, part});
  bucket.sent = rows_of(bucket);
  bucket.work = all_to_all(bucket.exchanged, bucket.sent);
}

// [ranks, rows, part]: part r of all roots goes to rank r. Who has fewer roots than others fills
// up.
at::Tensor InvariantReducer::rows_of(const Bucket& bucket) const {
  const int64_t part = bucket.elements / world_size_;
  if (rows_ == 1) return bucket.roots.front().second.view({world_size_, 1, part});
  std::vector<at::Tensor> rows;
  for (const auto& [node, sum] : bucket.roots) rows.push_back(sum.view({world_size_, part}));
  rows.resize(static_cast<size_t>(rows_), at::zeros({world_size_, part}, bucket.options));
  return at::stack(rows, 1);
}

// What this rank has of all shards: its part of the bucket, or, alone or by an all-reduce, all.
at::Tensor InvariantReducer::sum_of_roots(Bucket& bucket) const {
  if (bucket.work != nullptr) std::exchange(bucket.work, nullptr)->wait();
  if (!exchanges_parts()) return bucket.roots.front().second;
  ShardTree<at::Tensor> tree(options_.virtual_shards, [](at::Tensor left, const at::Tensor& right) {
    return left.add_(right);
  });
  for (size_t rank = 0; rank < roots_.size(); ++rank)
    for (size_t i = 0; i < roots_[rank].size(); ++i)
      tree.put(roots_[rank][i],
               bucket.exchanged[static_cast<int64_t>(rank)][static_cast<int64_t>(i)]);
  return tree.take_sum();
}

void InvariantReducer::average(Bucket& bucket) {
  bucket.part = sum_of_roots(bucket).div_(options_.virtual_shards);
  bucket.averages = bucket.part;
  if (!exchanges_parts()) return;
  bucket.averages = at::empty({bucket.elements}, bucket.options);
  bucket.work = all_gather(bucket.averages, bucket.part);
}

// Which parameters any shard has used: a byte each, of every rank.
void InvariantReducer::tell_used() {
  used_map_ = at::zeros({static_cast<int64_t>(used_.size())}, at::kByte);
  std::copy(used_.begin(), used_.end(), used_map_.data_ptr<uint8_t>());
  used_maps_ = at::zeros({world_size_, used_map_.numel()}, at::kByte);
  used_work_ = all_gather(used_maps_, used_map_);
}

void InvariantReducer::write_back(size_t place, const at::Tensor& averages) {
  at::Tensor& gradient = trained_.tensors[place].mutable_grad();
  gradient = found_[place];
  const at::Tensor average = view(averages, place);
  if (gradient.defined())
    gradient.copy_(average);
  else
    gradient = torch::autograd::utils::clone_obey_contract(average, trained_.tensors[place]);
}

void InvariantReducer::after_backward() {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;
  if (!std::exchange(synchronizes_, false)) return;
  synchronizes_ = true;  // for what is taken now
  options_.shards_together ? close_turns() : mark_unused();
  synchronizes_ = false;
  need_gradients([&](size_t place) { return taken_[place]; });
  if (launched_ < buckets_.size())
    throw std::runtime_error("a bucket was never launched: its backward failed");
  for (Bucket& bucket : buckets_) average(bucket);
  if (used_work_ != nullptr) std::exchange(used_work_, nullptr)->wait();
  for (Bucket& bucket : buckets_)
    if (bucket.work != nullptr) std::exchange(bucket.work, nullptr)->wait();
  times_.ends();
  const at::Tensor used = options_.find_unused_parameters ? used_maps_.amax(0) : at::Tensor();
  for (Bucket& bucket : buckets_) {
    for (const int64_t place : bucket.places) {
      const auto p = static_cast<size_t>(place);
      if (used.defined() && used.data_ptr<uint8_t>()[place] == 0)
        trained_.tensors[p].mutable_grad() = found_[p];
      else
        write_back(p, bucket.averages);
    }
    for (auto& [node, sum] : bucket.roots) bucket.spare.push_back(sum);
    bucket.roots.clear();
    bucket.sent = bucket.part = bucket.averages = at::Tensor();
  }
  if (range_.begin == 0) restore_buffers(first_buffers_);
  if (options_.shards_together) drop_turns();
  found_.clear();
  micro_batches_ = 0;
}

ReducerData InvariantReducer::data() {
  ReducerData data = data_of_parameters();
  BucketLayout places;
  for (const Bucket& bucket : buckets_) places.push_back(bucket.places);
  data.bucket_bytes = bytes_of(places);
  for (const size_t place : unused_)
    data.unused_parameter_bytes += static_cast<int64_t>(trained_.tensors[place].nbytes());
  times_.fill(&data);
  return data;
}

}  // namespace lockstep
