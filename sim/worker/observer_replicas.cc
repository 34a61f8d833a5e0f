#include <cstring>
#include <iterator>

#include "scenarios/base/hash.h"
#include "sim/plan/comparing.h"
#include "sim/worker/observer.h"

namespace lockstep {

// Ranks of which less is promised than of others do not lay down their states.
bool Observer::meets(int64_t step) const {
  return agreement_.between_ranks(step, context_.rank) == agreement_.most(step);
}

std::vector<int64_t> Observer::ranks_that_meet(int64_t step) const {
  std::vector<int64_t> ranks;
  const Agreement most = agreement_.most(step);
  for (int64_t rank = 0; rank < context_.plan.scenario.world_size; ++rank)
    if (agreement_.between_ranks(step, rank) == most) ranks.push_back(rank);
  return ranks;
}

// Of a step whose state is not compared: replicas' gradients by one hash, where they lie.
void Observer::pass_over(int64_t step) {
  state_ = nullptr;
  before_.clear();
  for (auto& feed : feeds_) skip_item(*feed, step);
  if (!primary_ || !context_.plan.hash_between) return;
  constexpr auto kGradient = static_cast<size_t>(StateKind::gradient);
  const uint64_t hash = hash_gradients(training_);
  chains_[kGradient] = hash64(&hash, sizeof hash, chains_[kGradient]);
  context_.recorder.append(EventKind::state_hash, kGradient, chains_[kGradient]);
}

int64_t Observer::board_step(int64_t step) const {
  return comparison_number(context_.plan, start_step_, step);
}

void Observer::meet_replicas(int64_t step) {
  const std::vector<int64_t> ranks = ranks_that_meet(step);
  if (state_ == own_state_.data() || !board_->arrive(board_step(step), std::ssize(ranks))) return;
  const StateLayout& part = part_of(agreement_.most(step));
  const std::byte* first = board_->state(ranks[0], board_step(step));
  std::optional<BitDifference> difference;
  std::vector<int64_t> differing;
  const std::byte* other_state = nullptr;
  const bool compares = agreement_.most(step) != Agreement::nothing;
  for (const int64_t rank : ranks) {
    if (replicas_differ_ || !compares) break;
    const std::byte* other = board_->state(rank, board_step(step));
    if (std::memcmp(first, other, static_cast<size_t>(layout_.bytes)) == 0) continue;
    const auto found = first_bit_difference(part, other, first);
    if (!found) continue;
    differing.push_back(rank);
    if (difference) continue;
    difference = found;
    other_state = other;
  }
  if (difference) {
    replicas_differ_ = true;
    MismatchContext at = context(Lane::replica, step, first, part);
    at.run = other_state;
    at.local = at.shards = nullptr;
    mismatch(Lane::replica, at, *difference);
    evidence_->mismatches.back().ranks = differing;
  }
  board_->release(board_step(step));
}

}  // namespace lockstep
