#include "sim/judge/starvation.h"

#include <algorithm>
#include <optional>

#include "sim/judge/last_position.h"

namespace lockstep {
namespace {

bool tells_core_wait(const Event& event) {
  const auto kind = static_cast<EventKind>(event.kind);
  return kind == EventKind::phase_begin || kind == EventKind::step_end || kind == EventKind::error;
}

}  // namespace

int64_t core_wait_since(const RunOutcome& outcome, int64_t rank, int64_t time_ns) {
  if (rank < 0 || rank >= static_cast<int64_t>(outcome.ranks.size())) return 0;
  int64_t before_ns = 0, last_ns = 0;
  for (const Event& event : outcome.ranks[static_cast<size_t>(rank)].events) {
    if (!tells_core_wait(event)) continue;
    const auto so_far_ns = static_cast<int64_t>(event.value);
    if (event.time_ns <= time_ns) before_ns = std::max(before_ns, so_far_ns);
    last_ns = std::max(last_ns, so_far_ns);
  }
  const ProcessEnd* end = end_of(outcome, rank);
  if (end != nullptr && end->state) last_ns = std::max(last_ns, end->state->core_wait_ns);
  return last_ns - before_ns;
}

int64_t core_wait_of_all_since(const RunOutcome& outcome, int64_t time_ns) {
  int64_t sum_ns = outcome.core_wait_ns;
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank)
    sum_ns += core_wait_since(outcome, static_cast<int64_t>(rank), time_ns);
  return sum_ns;
}

}  // namespace lockstep
