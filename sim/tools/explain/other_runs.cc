#include "sim/tools/explain/other_runs.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/base/median.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kHoursNs = 2 * 3600 * kSecondNs;
constexpr size_t kEnoughCalls = 8;  // of both, to tell a clock by
constexpr int64_t kAsFar = 64;      // collectives by which ranks of one run may differ

struct Newest {
  int64_t called_ns = 0;
  const FlightDump* dump = nullptr;
};

// By group, and number in it.
std::map<std::pair<std::string_view, int64_t>, int64_t> times_of(const FlightDump& dump) {
  std::map<std::pair<std::string_view, int64_t>, int64_t> times;
  for (const FlightEntry& entry : dump.entries)
    if (!entry.point_to_point) times[{entry.group, entry.sequence}] = entry.created_ns;
  return times;
}

std::map<std::string_view, int64_t> ends_of(const FlightDump& dump) {
  std::map<std::string_view, int64_t> ends;
  for (const FlightEntry& entry : dump.entries)
    if (!entry.point_to_point) ends[entry.group] = std::max(ends[entry.group], entry.sequence);
  return ends;
}

bool are_as_far(const FlightDump& a, const FlightDump& b) {
  const auto ends = ends_of(b);
  for (const auto& [group, end] : ends_of(a))
    if (const auto other = ends.find(group);
        other != ends.end() && std::abs(other->second - end) > kAsFar)
      return false;
  return true;
}

// Nine calls in ten are the same time apart, but for a second.
bool clocks_explain(const FlightDump& a, const FlightDump& b) {
  const auto times = times_of(b);
  std::vector<int64_t> apart;
  for (const auto& [call, time] : times_of(a))
    if (const auto other = times.find(call); other != times.end())
      apart.push_back(time - other->second);
  if (apart.size() < kEnoughCalls || !are_as_far(a, b)) return false;
  const int64_t middle = upper_median_of(apart);
  const auto near = std::count_if(apart.begin(), apart.end(),
                                  [&](int64_t one) { return std::abs(one - middle) <= kSecondNs; });
  return 10 * static_cast<size_t>(near) >= 9 * apart.size();
}

}  // namespace

RankSet of_other_runs(const std::vector<FlightDump>& dumps) {
  std::vector<Newest> newest;
  int64_t apart_ns = kHoursNs;
  for (const FlightDump& dump : dumps) {
    Newest last{0, &dump};
    for (const FlightEntry& entry : dump.entries) {
      last.called_ns = std::max(last.called_ns, entry.created_ns);
      apart_ns = std::max(apart_ns, 2 * entry.timeout_ms * 1'000'000);
    }
    if (last.called_ns > 0) newest.push_back(last);
  }
  RankSet others;
  if (newest.size() < 2) return others;
  std::sort(newest.begin(), newest.end(),
            [](const Newest& a, const Newest& b) { return a.called_ns < b.called_ns; });
  const Newest& middle = newest[newest.size() / 2];
  for (const Newest& last : newest)
    if (std::abs(last.called_ns - middle.called_ns) > apart_ns &&
        !clocks_explain(*last.dump, *middle.dump))
      others.insert(last.dump->rank);
  return others;
}

}  // namespace lockstep
