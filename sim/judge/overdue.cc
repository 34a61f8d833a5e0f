#include "sim/judge/overdue.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "sim/judge/last_position.h"
#include "sim/judge/short_time_out.h"
#include "sim/judge/starvation.h"
#include "sim/launch/process_state.h"

namespace lockstep {
namespace {

// A loaded machine wakes nobody in time.
constexpr int64_t kGraceMs = 500;
constexpr const char* kUnsure = "inconclusive";

bool was_running(const RunOutcome& outcome, int64_t rank) {
  const ProcessEnd* end = end_of(outcome, rank);
  return end != nullptr && end->by_launcher && !(end->state && is_stopped(*end->state));
}

struct Overdue {
  bool sure = false;  // else waits for a core may be why
  std::string why;
};

std::optional<Overdue> overdue(const RunOutcome& outcome, const RankView& rank) {
  const Event* arrival = pending_in(rank);
  if (arrival == nullptr || rank.error_ns || !was_running(outcome, rank.rank)) return std::nullopt;
  const int64_t given_ms = time_out_ms(outcome.plan.scenario.timeouts, *arrival);
  const int64_t least_ms = 2 * given_ms + kGraceMs;
  const int64_t passed_ms = (outcome.failed_ns - arrival->time_ns) / 1'000'000;
  if (passed_ms < least_ms) return std::nullopt;
  const int64_t no_core_ms = core_wait_of_all_since(outcome, arrival->time_ns) / 1'000'000;
  const int64_t waited_ms = passed_ms - no_core_ms;
  if (waited_ms >= least_ms)
    return Overdue{true, fmt::format("timeline: rank {} was in {} for {} ms, which has a time-out "
                                     "of {} ms",
                                     rank.rank, collective_text(*arrival), waited_ms, given_ms)};
  return Overdue{
      false, fmt::format("timeline: inconclusive: busy machine: rank {} was in {} for "
                         "{} ms, which has a time-out of {} ms, while processes of "
                         "the run had no core for {} ms",
                         rank.rank, collective_text(*arrival), passed_ms, given_ms, no_core_ms)};
}

}  // namespace

void decide_timeline(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                     RunResult* result) {
  std::string verdict = "not_run";
  if (outcome.failed_ns > 0 && !outcome.plan.threads && !outcome.interrupted) {
    verdict = "pass";
    for (const RankView& rank : views_at(outcome, ranks, outcome.failed_ns)) {
      const std::optional<Overdue> late = overdue(outcome, rank);
      if (!late) continue;
      if (late->sure)
        verdict = "fail";
      else if (verdict == "pass")
        verdict = kUnsure;
      result->check_reasons.push_back(late->why);
    }
  }
  result->checks.emplace_back("timeline", verdict);
}

}  // namespace lockstep
