#include "sim/worker/observer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "scenarios/base/hash.h"
#include "scenarios/scenario.h"
#include "sim/plan/agreement.h"
#include "sim/plan/lanes.h"
#include "sim/worker/diagnose.h"

namespace lockstep {

struct Observer::Feed {
  Lane lane;
  std::shared_ptr<StateStream> stream;
  int64_t shard_bytes = 0;
  int64_t compared = 0;
  double worst = 0;
  int64_t worst_entry = -1;
  bool active = true;
  bool controlled = false;
};

namespace {

// States up to this size are kept for one more step, as evidence of what an update did.
constexpr int64_t kKeptBytesMax = 4 << 20;

// The entry on which controls do their damage: the largest gradient, else the largest of all.
const StateEntry& target_entry(const StateLayout& layout) {
  return *std::max_element(layout.entries.begin(), layout.entries.end(),
                           [](const StateEntry& a, const StateEntry& b) {
                             const auto rank = [](const StateEntry& e) {
                               return std::pair(e.kind == StateKind::gradient, e.numel);
                             };
                             return rank(a) < rank(b);
                           });
}

// Takes this rank's share of an averaged gradient out of the state; or, where parameters alone are
// compared, out of them.
template <class T>
void drop_share(const StateEntry& entry, const std::byte* local, double world_size,
                std::byte* state) {
  auto* values = reinterpret_cast<T*>(state + entry.offset);
  auto* share = reinterpret_cast<const T*>(local);
  for (int64_t i = 0; i < entry.numel; ++i) values[i] -= static_cast<T>(share[i] / world_size);
}

void add_one(const StateEntry& entry, std::byte* state) {
  LOCKSTEP_CHECK(entry.dtype == "float64", "lane float64 compares doubles");
  *reinterpret_cast<double*>(state + entry.offset) += 1;
}

}  // namespace

Observer::Observer(const RankContext& context, const Training& training,
                   const RecordingProbe& probe, bool primary, Evidence* evidence)
    : context_(context),
      training_(training),
      probe_(probe),
      primary_(primary),
      start_step_(primary ? context.plan.start_step : context.plan.double_start_step),
      evidence_(evidence),
      agreement_(context.plan.scenario),
      layout_(state_layout(training, context.plan.scenario.optimizer.kind)),
      parameters_(parameters_of(layout_)) {
  const Scenario& scenario = context_.plan.scenario;
  own_state_.resize(static_cast<size_t>(layout_.bytes));
  open_feeds();
  const bool replicas = primary_ && ranks_of(scenario) > 1 && asks_for(scenario, Lane::replica);
  if (replicas && layout_.bytes <= ReplicaBoard::kStateBytesMax && context_.board)
    board_ = context_.board(layout_.bytes, patience());
  if (primary_ && context_.plan.watches_states() && context_.rank == 0)
    rounding_ = context_.stream("rounding", patience());
}

Observer::~Observer() {
  for (auto& feed : feeds_) feed->stream->leave(context_.rank);
  if (rounding_) rounding_->finish();
}

void Observer::open_feeds() {
  const RunPlan& plan = context_.plan;
  const bool wide = plan.scenario.dtype == "float64";
  for (const std::string& golden : plan.goldens) {
    const Lane lane = lane_from(golden).value_or(Lane::one_device);
    const bool with_primary = lane != Lane::float64 || (wide && !plan.double_run);
    if (primary_ == with_primary) open_feed(golden, lane);
  }
}

void Observer::open_feed(const std::string& golden, Lane lane) {
  auto feed = std::make_unique<Feed>();
  feed->lane = lane;
  feed->stream = context_.stream(golden, patience());
  if (feed->stream == nullptr) return;  // its golden run failed: no comparison, so no pass
  const bool shards = lane == Lane::replay && context_.plan.shards;
  if (shards) feed->shard_bytes = gradients_end(layout_);
  if (shards || lane == Lane::float64)
    if (!local_) local_ = std::make_unique<LocalGradients>(training_, layout_);
  feeds_.push_back(std::move(feed));
}

Deadline Observer::patience() const {
  return deadline_after(std::chrono::milliseconds(context_.plan.scenario.timeouts.run_ms));
}

void Observer::before_backward() {
  if (local_) local_->clear();
}

void Observer::before_last_backward() {
  if (!local_ || !primary_ || accumulation_noted_) return;
  const std::string lost = local_->lost();
  if (lost.empty()) return;
  accumulation_noted_ = true;
  const int64_t step = context_.recorder.step();
  evidence_->check_reasons.push_back(
      {Check::accumulation, context_.rank, step,
       fmt::format("rank {}, step {}: grad() of {} is not what the micro-batches before the last "
                   "have given",
                   context_.rank, step, lost)});
}

void Observer::forget_training() {
  had_local_ = local_ != nullptr;
  local_.reset();
}

void Observer::know_training() {
  if (had_local_) local_ = std::make_unique<LocalGradients>(training_, layout_);
}

void Observer::after_step(int64_t step) {
  observe(step);
  record_collectives();
}

void Observer::after_shadow(int64_t step) {
  record_collectives();
  for (auto& feed : feeds_)
    if (promised(*feed, step) == Agreement::nothing) skip_item(*feed, step);
}

void Observer::observe(int64_t step) {
  if (!is_compared(context_.plan, start_step_, step)) return pass_over(step);
  if (state_ != nullptr && (rounding_ || layout_.bytes <= kKeptBytesMax))
    before_.assign(state_, state_ + layout_.bytes);
  state_ = own_state_.data();
  if (board_ && meets(step)) {
    std::byte* place = board_->begin(context_.rank, board_step(step), patience());
    if (place != nullptr) state_ = place;
  }
  copy_state(training_, layout_, state_);
  const std::vector<uint64_t> hashes = hash_entries(layout_, state_);
  if (primary_) record_hashes(hashes, step);
  if (primary_ && is_first(step)) control_replica(hashes);
  if (board_ && meets(step)) meet_replicas(step);
  for (auto& feed : feeds_) compare(*feed, step);
  if (rounding_ && step > 0) publish_rounding();
  const bool shards_wanted = primary_ && context_.plan.shards;
  const bool controlled = std::all_of(feeds_.begin(), feeds_.end(), [](const auto& feed) {
    return feed->controlled || !feed->active;
  });
  // Lane float64 tells by them who added what, where that costs next to nothing.
  const bool small = layout_.bytes <= kKeptBytesMax;
  const bool doubles = std::any_of(feeds_.begin(), feeds_.end(), [](const auto& feed) {
    return feed->lane == Lane::float64 && feed->active && feed->worst <= kFloat64Bound;
  });
  if (controlled && !shards_wanted && !(small && doubles)) local_.reset();
}

// Is what this rank holds of a kind of state the same on others that were observed with it?
bool Observer::is_promised(StateKind kind, int64_t step) const {
  const Agreement agreement = agreement_.between_ranks(step, context_.rank);
  const Agreement needed = kind == StateKind::parameter ? Agreement::parameters : Agreement::all;
  return agreement >= needed;
}

void Observer::record_hashes(const std::vector<uint64_t>& hashes, int64_t step) {
  bool present[4] = {};
  // Ranks that skip steps have no common past.
  if (!agreement_.is_simple()) std::fill(std::begin(chains_), std::end(chains_), 0);
  for (size_t i = 0; i < hashes.size(); ++i) {
    const auto kind = static_cast<size_t>(layout_.entries[i].kind);
    chains_[kind] = hash64(&hashes[i], sizeof hashes[i], chains_[kind]);
    present[kind] = true;
  }
  Recorder& recorder = context_.recorder;
  for (int32_t kind = 0; kind < 4; ++kind) {
    const bool known_before_first = kind == static_cast<int32_t>(StateKind::buffer) ||
                                    kind == static_cast<int32_t>(StateKind::parameter);
    if (present[kind] && (step > 0 || known_before_first) &&
        is_promised(static_cast<StateKind>(kind), step))
      recorder.append(EventKind::state_hash, kind, chains_[kind]);
  }
  if (ranks_of(context_.plan.scenario) > 1) {
    for (const StateEntry& entry : layout_.entries)
      replica_compared_ += is_promised(entry.kind, step);
    recorder.append(EventKind::compared, static_cast<int32_t>(Lane::replica),
                    static_cast<uint64_t>(replica_compared_));
  }
}

void Observer::record_collectives() {
  if (primary_) context_.recorder.append(EventKind::collective_hash, -1, probe_.collective_hash());
}

void Observer::control_replica(const std::vector<uint64_t>& hashes) {
  const Scenario& scenario = context_.plan.scenario;
  if (ranks_of(scenario) == 1 || !asks_for(scenario, Lane::replica)) return;
  std::byte& damaged = state_[target_entry(layout_).offset];  // nobody else looks at it yet
  damaged ^= std::byte{1};
  const bool detected = hash_entries(layout_, state_) != hashes;
  damaged ^= std::byte{1};
  record_control(Lane::replica, detected);
}

void Observer::record_control(Lane lane, bool detected) {
  controls_.emplace_back(lane, detected);
  context_.recorder.append(EventKind::control, static_cast<int32_t>(lane), detected);
}

MismatchContext Observer::context(Lane lane, int64_t step, const std::byte* golden,
                                  const StateLayout& layout) const {
  MismatchContext context;
  context.lane = lane;
  context.step = step;
  context.rank = context_.rank;
  context.world_size = shards_of(context_.plan.scenario);
  context.layout = &layout;
  context.run = state_;
  context.before = before_.empty() ? nullptr : before_.data();
  context.clipping = &context_.plan.scenario.clipping;
  context.golden = golden;
  // Of virtual shards it holds the last one's alone.
  const bool whole = local_ && !has_virtual_shards(context_.plan.scenario);
  context.local = whole ? local_->bytes() : nullptr;
  context.bucket_of = [this](int64_t parameter) { return probe_.bucket_of(parameter); };
  context.shape_of = [this, &layout](int64_t entry) {
    const StateEntry& e = layout.entries[static_cast<size_t>(entry)];
    for (const NamedTensor& buffer : training_.buffers)
      if (e.kind == StateKind::buffer && buffer.name == e.name) return buffer.tensor.sizes().vec();
    if (e.parameter < 0) return std::vector<int64_t>{e.numel};
    const at::Tensor& tensor = training_.parameters.at(static_cast<size_t>(e.parameter)).tensor;
    return tensor.numel() == e.numel ? tensor.sizes().vec() : std::vector<int64_t>{e.numel};
  };
  return context;
}

void Observer::mismatch(Lane lane, const MismatchContext& at, const BitDifference& difference) {
  evidence_->mismatches.push_back(diagnose(at, difference));
  context_.recorder.append(EventKind::mismatch, static_cast<int32_t>(lane),
                           (static_cast<uint64_t>(difference.entry) << 32) |
                               (static_cast<uint64_t>(difference.element) & 0xffffffffU));
  write_evidence(context_.evidence_path, *evidence_);
  dump_states(context_.dump_prefix, at);
}

void Observer::compare(Feed& feed, int64_t step) {
  if (!feed.active) return;
  if (step > 0 && step == start_step_) return skip(feed, step);
  if (promised(feed, step) == Agreement::nothing) return skip_item(feed, step);
  const std::byte* golden = feed.stream->begin_read(context_.rank, step, patience());
  if (golden == nullptr) {
    feed.active = false;
    return;
  }
  if (feed.lane == Lane::replay && has_own_states(context_.plan.scenario))
    golden += context_.rank * layout_.bytes;
  if (step > context_.plan.start_step && !std::exchange(feed.controlled, true))
    control(feed, golden, part_of(promised(feed, step)));
  if (feed.lane == Lane::float64)
    compare_distance(feed, step, golden);
  else if (feed.lane != Lane::one_device)
    compare_bits(feed, step, golden);
  else
    compare_with_one_device(step, golden);
  feed.stream->end_read(context_.rank);
}

// A golden run is never interrupted: what came before the resume was compared by that run.
void Observer::skip(Feed& feed, int64_t steps) {
  for (int64_t item = 0; item <= steps; ++item) skip_item(feed, item);
}

void Observer::skip_item(Feed& feed, int64_t item) {
  if (!feed.active) return;
  feed.active = feed.stream->begin_read(context_.rank, item, patience()) != nullptr;
  if (feed.active) feed.stream->end_read(context_.rank);
}

Agreement Observer::promised(const Feed& feed, int64_t step) const {
  return feed.lane == Lane::replay ? agreement_.with_replay(step, context_.rank)
                                   : agreement_.between_ranks(step, context_.rank);
}

const StateLayout& Observer::part_of(Agreement agreement) const {
  return agreement == Agreement::all ? layout_ : parameters_;
}

void Observer::compare_bits(Feed& feed, int64_t step, const std::byte* golden) {
  const StateLayout& part = part_of(promised(feed, step));
  feed.compared += static_cast<int64_t>(part.entries.size());
  if (auto difference = first_bit_difference(part, state_, golden)) {
    MismatchContext at = context(feed.lane, step, golden, part);
    if (feed.shard_bytes > 0 && step > 0) {
      at.shards = golden + layout_.bytes;
      at.shard_bytes = feed.shard_bytes;
    }
    mismatch(feed.lane, at, *difference);
    feed.active = false;
    feed.stream->leave(context_.rank);
  }
  context_.recorder.append(EventKind::compared, static_cast<int32_t>(feed.lane),
                           static_cast<uint64_t>(feed.compared));
}

void Observer::compare_distance(Feed& feed, int64_t step, const std::byte* golden) {
  const StateLayout& part = part_of(promised(feed, step));
  feed.compared += static_cast<int64_t>(part.entries.size());
  const Distance distance = worst_distance(part, state_, golden);
  const bool first_beyond = feed.worst <= kFloat64Bound && !(distance.worst <= kFloat64Bound);
  if (!(distance.worst <= feed.worst)) {
    feed.worst = distance.worst;
    feed.worst_entry = distance.entry;
  }
  if (first_beyond)
    if (auto difference = farthest_difference(part, distance.first_beyond, state_, golden)) {
      MismatchContext at = context(feed.lane, step, golden, part);
      at.element_bounds = element_bounds(part, golden);
      mismatch(feed.lane, at, *difference);
    }
  const auto lane = static_cast<int32_t>(feed.lane);
  context_.recorder.append(EventKind::distance, lane, std::bit_cast<uint64_t>(feed.worst),
                           static_cast<uint32_t>(feed.worst_entry));
  context_.recorder.append(EventKind::compared, lane, static_cast<uint64_t>(feed.compared));
}

void Observer::control(Feed& feed, const std::byte* golden, const StateLayout& part) {
  if (feed.lane == Lane::one_device) return;
  std::vector<std::byte> damaged(state_, state_ + layout_.bytes);
  bool detected = false;
  if (feed.lane == Lane::float64) {
    if (!local_) return;
    const StateKind kind =
        part.entries.front().kind;  // gradient; parameter, where they alone are compared
    for (const StateEntry& entry : part.entries) {
      if (entry.kind != kind || entry.dtype != "float64") continue;
      const StateEntry& gradient = layout_.entries[static_cast<size_t>(entry.parameter)];
      drop_share<double>(entry, local_->bytes() + gradient.offset,
                         static_cast<double>(context_.plan.scenario.world_size), damaged.data());
    }
    // A rank's share may be nothing: of units that none of its samples switches on.
    if (std::memcmp(damaged.data(), state_, damaged.size()) == 0)
      add_one(target_entry(part), damaged.data());
    detected = !(worst_distance(part, damaged.data(), golden).worst <= kFloat64Bound);
  } else {
    damage_first_element(target_entry(part), damaged.data());
    detected = first_bit_difference(part, damaged.data(), golden).has_value();
  }
  if (feed.lane == Lane::invariant) detected = detected && sees_exchange(golden, part);
  record_control(feed.lane, detected);
}

// The run's own gradients with the bits that two shards in exchanged places of the tree change.
bool Observer::sees_exchange(const std::byte* golden, const StateLayout& part) const {
  std::vector<std::byte> damaged(state_, state_ + layout_.bytes);
  const std::byte* changed = golden + layout_.bytes;
  for (int64_t i = 0; i < gradients_end(layout_); ++i)
    damaged[static_cast<size_t>(i)] ^= changed[i];
  return first_bit_difference(part, damaged.data(), golden).has_value();
}

void Observer::publish_rounding() {
  std::byte* slot = rounding_->begin_write(patience());
  if (slot == nullptr) return;
  std::memcpy(slot, before_.data(), before_.size());
  std::memcpy(slot + layout_.bytes, state_, static_cast<size_t>(layout_.bytes));
  rounding_->end_write();
}

void Observer::finish() {
  // Again, since a long run may have pushed the first record out of the file.
  for (const auto& [lane, detected] : controls_)
    context_.recorder.append(EventKind::control, static_cast<int32_t>(lane), detected);
  if (primary_) record_result();
}

}  // namespace lockstep
