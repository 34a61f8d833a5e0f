#include "sim/judge/overdue.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/judge/whereabouts.h"
#include "sim/launch/process_state.h"

namespace lockstep {
namespace {

// A loaded machine wakes nobody in time.
constexpr int64_t kGraceMs = 500;

// The first that it entered and that has not ended on it.
const Event* pending_in(const RankView& rank) {
  if (rank.primary_done) return nullptr;
  const auto pending = std::find_if(
      rank.arrivals.begin(), rank.arrivals.end(),
      [&](const Event& arrival) { return !rank.last_end || arrival.sequence > *rank.last_end; });
  return pending == rank.arrivals.end() ? nullptr : &*pending;
}

bool was_running(const RunOutcome& outcome, int64_t rank) {
  const ProcessEnd* end = end_of(outcome, rank);
  return end != nullptr && end->by_launcher && !(end->state && is_stopped(*end->state));
}

std::string overdue(const RunOutcome& outcome, const RankView& rank) {
  const Event* arrival = pending_in(rank);
  if (arrival == nullptr || rank.error_ns || !was_running(outcome, rank.rank)) return "";
  const Timeouts& timeouts = outcome.plan.scenario.timeouts;
  const int64_t given_ms = arrival->step > 0 ? timeouts.collective_ms : timeouts.construction_ms;
  const int64_t waited_ms = (outcome.failed_ns - arrival->time_ns) / 1'000'000;
  if (waited_ms < 2 * given_ms + kGraceMs) return "";
  return fmt::format("timeline: rank {} was in {} for {} ms, which has a time-out of {} ms",
                     rank.rank, collective_text(*arrival), waited_ms, given_ms);
}

}  // namespace

void decide_timeline(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                     RunResult* result) {
  const char* verdict = "not_run";
  if (outcome.failed_ns > 0 && !outcome.plan.threads && !outcome.interrupted) {
    verdict = "pass";
    for (const RankView& rank : views_at(outcome, ranks, outcome.failed_ns)) {
      const std::string why = overdue(outcome, rank);
      if (why.empty()) continue;
      verdict = "fail";
      result->check_reasons.push_back(why);
    }
  }
  result->checks.emplace_back("timeline", verdict);
}

}  // namespace lockstep
