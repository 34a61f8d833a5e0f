#include "sim/judge/short_time_out.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/judge/last_position.h"

namespace lockstep {
namespace {

// Of the first collective that a rank timed out in; 0: none is known. Where the error does not say
// which one that was, it is the first that has ended on nobody.
int64_t first_timed_out(const std::vector<RankView>& ranks) {
  int64_t ended = 0, first = 0;
  for (const RankView& rank : ranks) ended = std::max<int64_t>(ended, rank.last_end.value_or(0));
  for (const RankView& rank : ranks) {
    if (rank.evidence.error.kind != ErrorKind::timeout) continue;
    const int64_t known = rank.evidence.error.sequence;
    const int64_t sequence = known > 0 ? known : ended + 1;
    if (first == 0 || sequence < first) first = sequence;
  }
  return first;
}

const Event* arrival_at(const RankView& rank, int64_t sequence) {
  const auto found =
      std::find_if(rank.arrivals.begin(), rank.arrivals.end(),
                   [&](const Event& arrival) { return arrival.sequence == sequence; });
  return found == rank.arrivals.end() ? nullptr : &*found;
}

}  // namespace

const Event* pending_in(const RankView& rank) {
  if (rank.primary_done) return nullptr;
  const auto pending = std::find_if(
      rank.arrivals.begin(), rank.arrivals.end(),
      [&](const Event& arrival) { return !rank.last_end || arrival.sequence > *rank.last_end; });
  return pending == rank.arrivals.end() ? nullptr : &*pending;
}

int64_t time_out_ms(const Timeouts& timeouts, const Event& arrival) {
  return arrival.step > 0 ? timeouts.collective_ms : timeouts.construction_ms;
}

std::optional<JointWait> joint_wait(const RunOutcome& outcome, const std::vector<RankView>& then) {
  const int64_t sequence = first_timed_out(then);
  if (sequence == 0) return std::nullopt;
  JointWait wait;
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
  for (const RankView& rank : then) {
    const Event* arrival = arrival_at(rank, sequence);
    if (arrival == nullptr || rank.records_lost) return std::nullopt;
    first_ns = std::min(first_ns, arrival->time_ns);
    if (arrival->time_ns <= last_ns) continue;
    last_ns = arrival->time_ns;
    wait.last = rank.rank;
    wait.arrival = *arrival;
  }
  wait.entered_within_ms = (last_ns - first_ns + 999'999) / 1'000'000;
  wait.given_ms = time_out_ms(outcome.plan.scenario.timeouts, wait.arrival);
  return wait;
}

std::string to_words(const JointWait& wait) {
  const std::string what = collective_text(wait.arrival);
  if (wait.together())
    return fmt::format(
        "the time-out of {} is too short, or the network lost what was sent: all ranks entered {} "
        "within {}",
        duration_text(wait.given_ms), what, duration_text(wait.entered_within_ms));
  return fmt::format(
      "rank {} entered {} {} after the first rank, of the {} that its time-out allows", wait.last,
      what, duration_text(wait.entered_within_ms), duration_text(wait.given_ms));
}

}  // namespace lockstep
