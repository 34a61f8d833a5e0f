#include "sim/judge/overdue.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/judge/last_position.h"
#include "sim/judge/short_time_out.h"
#include "sim/judge/starvation.h"
#include "sim/launch/process_state.h"

namespace lockstep {
namespace {

// A loaded machine wakes nobody in time.
constexpr int64_t kGraceMs = 500;

bool was_running(const RunOutcome& outcome, int64_t rank) {
  const ProcessEnd* end = end_of(outcome, rank);
  return end != nullptr && end->by_launcher && !(end->state && is_stopped(*end->state));
}

std::string overdue(const RunOutcome& outcome, const RankView& rank) {
  const Event* arrival = pending_in(rank);
  if (arrival == nullptr || rank.error_ns || !was_running(outcome, rank.rank)) return "";
  const int64_t given_ms = time_out_ms(outcome.plan.scenario.timeouts, *arrival);
  const int64_t no_core_ns = core_wait_of_all_since(outcome, arrival->time_ns);
  const int64_t waited_ms = (outcome.failed_ns - arrival->time_ns - no_core_ns) / 1'000'000;
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
