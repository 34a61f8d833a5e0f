#include <cstring>
#include <iterator>

#include "sim/worker/observer.h"

namespace lockstep {

// Ranks of which less is promised than of others do not lay down their states.
bool Observer::meets(int64_t step) const {
  return agreement_.between_ranks(step, around_.rank) == agreement_.most(step);
}

std::vector<int64_t> Observer::ranks_that_meet(int64_t step) const {
  std::vector<int64_t> ranks;
  const Agreement most = agreement_.most(step);
  for (int64_t rank = 0; rank < around_.plan.scenario.world_size; ++rank)
    if (agreement_.between_ranks(step, rank) == most) ranks.push_back(rank);
  return ranks;
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
