#include "sim/tools/explain/arrival_runs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/tools/explain/flight_mismatch.h"

namespace lockstep {
namespace {

constexpr double kRoundMs = 90;       // of a watchdog, a little less
constexpr double kSeenAtOnceMs = 10;  // in one of its rounds

bool ends_at_once(const FlightEntry& call) {
  return is_symmetric(call.operation) && !call.operation.starts_with("all_to_all");
}

using RunOf = int64_t FlightEntry::*;

bool all_tell(const std::vector<const FlightEntry*>& entries, RunOf run) {
  return std::all_of(entries.begin(), entries.end(),
                     [&](const FlightEntry* entry) { return entry->*run >= 0; });
}

GroupArrivals by_runs(const GroupArrivals& called, RunOf run) {
  GroupArrivals arrivals;
  arrivals.name = called.name;
  arrivals.description = called.description;
  arrivals.ranks = called.ranks;
  arrivals.by_runs = true;
  for (size_t i = 0; i < called.calls.size(); ++i) {
    const std::vector<const FlightEntry*>& entries = called.entries[i];
    const bool left_out =
        !ends_at_once(*called.calls[i]) || (i > 0 && !ends_at_once(*called.calls[i - 1]));
    arrivals.whole &= !left_out;
    if (left_out || !all_tell(entries, run)) continue;
    int64_t longest_ns = 0;
    for (const FlightEntry* entry : entries) longest_ns = std::max(longest_ns, entry->*run);
    const double first_ms = middle(called.came_ms[i]);
    arrivals.calls.push_back(called.calls[i]);
    arrivals.kinds.push_back(called.kinds[i]);
    arrivals.entries.push_back(entries);
    std::vector<double>& came = arrivals.came_ms.emplace_back();
    for (const FlightEntry* entry : entries)
      came.push_back(first_ms + static_cast<double>(longest_ns - entry->*run) * 1e-6);
  }
  return arrivals;
}

// Are most of the times that are neither none nor seconds too short for rounds?
bool are_of_no_rounds(const GroupArrivals& arrivals) {
  size_t between = 0, long_ones = 0;
  for (const std::vector<const FlightEntry*>& entries : arrivals.entries)
    for (const FlightEntry* entry : entries) {
      const double ms = static_cast<double>(entry->seen_ns) * 1e-6;
      between += ms > kSeenAtOnceMs && ms < kRoundMs ? 1 : 0;
      long_ones += ms >= kRoundMs ? 1 : 0;
    }
  return between > long_ones;
}

}  // namespace

std::optional<GroupArrivals> arrivals_by_runs(const GroupArrivals& called) {
  if (called.calls.empty() || called.calls.front()->gloo) return std::nullopt;
  GroupArrivals timed = by_runs(called, &FlightEntry::ran_ns);
  if (!timed.calls.empty()) return timed;
  GroupArrivals seen = by_runs(called, &FlightEntry::seen_ns);
  if (seen.calls.empty() || !are_of_no_rounds(seen)) return std::nullopt;
  return seen;
}

}  // namespace lockstep
