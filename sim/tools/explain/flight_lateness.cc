#include "sim/tools/explain/flight_lateness.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "scenarios/base/median.h"

namespace lockstep {

std::optional<int64_t> usual_difference(const std::vector<int64_t>& differences,
                                        int64_t tolerance_ns) {
  if (differences.size() < 2) return std::nullopt;
  const int64_t middle = upper_median_of(differences);
  const auto agree = std::count_if(differences.begin(), differences.end(), [&](int64_t one) {
    return std::abs(one - middle) <= tolerance_ns;
  });
  if (2 * static_cast<size_t>(agree) <= differences.size()) return std::nullopt;
  return middle;
}

namespace {

constexpr size_t kFewCollectives = 8;  // of a group, to align clocks by

// Nanoseconds by which one rank's clock is ahead of another's: the median difference at the
// newest collectives of both before this one, where most of them agree. One that a rank was late
// for says nothing.
std::optional<int64_t> clock_offset(const std::map<int64_t, int64_t>& base,
                                    const std::map<int64_t, int64_t>& other, int64_t before,
                                    int64_t tolerance_ns) {
  std::vector<int64_t> differences;
  for (auto at = base.lower_bound(before); at != base.begin() && differences.size() < 21;) {
    --at;
    if (const auto same = other.find(at->first); same != other.end())
      differences.push_back(same->second - at->second);
  }
  return usual_difference(differences, tolerance_ns);
}

// The same by the collectives of all groups, for groups that are used seldom.
std::optional<int64_t> clock_offset_by_all(const std::map<std::string, GroupRecord>& groups,
                                           const FlightArrival& base, int64_t other,
                                           int64_t tolerance_ns) {
  std::vector<int64_t> differences;
  for (const auto& [name, group] : groups)
    for (const auto& [sequence, arrivals] : group.collectives) {
      const FlightEntry *of_base = nullptr, *of_other = nullptr;
      for (const FlightArrival& arrival : arrivals) {
        if (arrival.rank == base.rank) of_base = arrival.entry;
        if (arrival.rank == other) of_other = arrival.entry;
      }
      if (of_base != nullptr && of_other != nullptr && of_base->created_ns < base.entry->created_ns)
        differences.push_back(of_other->created_ns - of_base->created_ns);
    }
  return usual_difference(differences, tolerance_ns);
}

}  // namespace

FlightLateness lateness_for(const std::map<std::string, GroupRecord>& groups,
                            const GroupRecord& group, const std::vector<FlightArrival>& arrivals,
                            const FlightArrival& first, CallTimes* created) {
  FlightLateness late;
  const int64_t timeout_ns = first.entry->timeout_ms * 1'000'000;
  for (const FlightArrival& arrival : arrivals) {
    if (arrival.rank == first.rank || timeout_ns <= 0) continue;
    auto offset = clock_offset((*created)[first.rank], (*created)[arrival.rank],
                               arrival.entry->sequence, timeout_ns / 8);
    if (!offset && group.collectives.size() <= kFewCollectives)
      offset = clock_offset_by_all(groups, first, arrival.rank, timeout_ns / 8);
    const int64_t came = arrival.entry->created_ns - offset.value_or(0);
    if (came - first.entry->created_ns <= timeout_ns) continue;
    late.first_ns = late.ranks.empty() ? came : std::min(late.first_ns, came);
    late.newest_ns = std::max(late.newest_ns, came);
    late.ranks.insert(arrival.rank);
    late.aligned &= offset.has_value();
  }
  return late;
}

bool went_on(const GroupRecord& group, int64_t sequence, int64_t first_rank, int64_t late_ns) {
  const auto after = group.collectives.upper_bound(sequence);
  return std::any_of(after, group.collectives.end(), [&](const auto& later) {
    return std::any_of(later.second.begin(), later.second.end(), [&](const FlightArrival& arrival) {
      return arrival.rank == first_rank && arrival.entry->created_ns > late_ns;
    });
  });
}

CallTimes call_times(const GroupRecord& group) {
  CallTimes created;
  for (const auto& [sequence, arrivals] : group.collectives)
    for (const FlightArrival& arrival : arrivals)
      created[arrival.rank][sequence] = arrival.entry->created_ns;
  return created;
}

}  // namespace lockstep
