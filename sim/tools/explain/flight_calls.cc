#include "sim/tools/explain/flight_calls.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace lockstep {
namespace {

bool completed_something(const FlightDump& dump) {
  return std::any_of(dump.entries.begin(), dump.entries.end(),
                     [](const FlightEntry& entry) { return entry.done; });
}

}  // namespace

bool waits_first_in(const FlightEntry& entry, const FlightDump& dump) {
  if (!dump.tells_starts) return false;
  const auto first =
      std::find_if(dump.entries.begin(), dump.entries.end(),
                   [](const FlightEntry& other) { return !other.done && !other.gloo; });
  return first != dump.entries.end() && *first == entry;
}

bool waits_in_point_to_point(const FlightDump& dump) {
  return std::any_of(dump.entries.begin(), dump.entries.end(),
                     [](const FlightEntry& entry) { return entry.point_to_point && !entry.done; });
}

bool ends_in_point_to_point(const FlightDump& dump) {
  std::map<std::string_view, const FlightEntry*> last;
  for (const FlightEntry& entry : dump.entries)
    if (!entry.gloo) last[entry.group] = &entry;
  return std::any_of(last.begin(), last.end(), [](const auto& one) {
    return one.second->point_to_point && !one.second->done;
  });
}

void share_starts(std::vector<FlightDump>* dumps) {
  bool told = false;
  for (const FlightDump& dump : *dumps) {
    if (completed_something(dump) && !dump.tells_starts) return;
    told |= dump.tells_starts;
  }
  for (FlightDump& dump : *dumps) dump.tells_starts |= told && !completed_something(dump);
}

const FlightEntry* last_call(const FlightDump& dump) {
  const auto last = std::max_element(
      dump.entries.begin(), dump.entries.end(),
      [](const FlightEntry& a, const FlightEntry& b) { return a.created_ns < b.created_ns; });
  return last == dump.entries.end() ? nullptr : &*last;
}

}  // namespace lockstep
