#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/judge/rank_view.h"

namespace lockstep {

// How good an explanation of a failed run an end is: the smallest is the primary failure.
//   own_cause   died, exited or threw by itself
//   left_early  ended well, or was about to, with fewer steps than the others waited for
//   rejected    refused what it was given
//   hung        alive, but kept the others waiting, or was still running past a deadline
//   waited      timed out while it waited for another
//   lost_peer   its connection to another was closed
enum class FailureRole { own_cause, left_early, rejected, hung, waited, lost_peer, none };

struct FailureCandidate {
  FailureRole role = FailureRole::none;
  int64_t rank = -1;
  int64_t order = 0;                // in which the launcher learnt of it
  const ProcessEnd* end = nullptr;  // null: a thread, known by its evidence alone
};

// Everyone whose end was not good, the primary one first. Ranks that died are told apart by the
// launcher's order alone. Among those that hang one that was stopped comes first, one that waits
// for a key of the store last, then who came least far, since the others waited for it. Of ranks
// that say who refused them or closed their connection the most accused comes first, not counting
// those who accuse one that had lost a peer before, and closed; of equals who failed first. `then`:
// the views when the launcher learnt that the run had failed (views_at); `ranks`: the whole ones.
// No receipt of a fault and no schedule is looked at.
std::vector<FailureCandidate> failure_candidates(const RunOutcome& outcome,
                                                 const std::vector<RankView>& ranks,
                                                 const std::vector<RankView>& then);

const RankView* view_of(const std::vector<RankView>& ranks, int64_t rank);  // null: none
int64_t last_arrival(const RankView* view);                                 // 0: none

}  // namespace lockstep
