#include "sim/tools/explain/settle.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kCoalesced = "coalesced";

// Of the whole of coalesced sends and receives: recorded as no such, it counts them and has the
// number of the last collective.
bool is_of_point_to_point(const FlightEntry& entry, const FlightEntry* before) {
  if (entry.operation != kCoalesced) return false;
  if (before == nullptr) return true;  // the ring may have lost its parts
  if (entry.sequence > before->sequence) return false;
  return before->point_to_point || entry.point_to_point_sequence > before->point_to_point_sequence;
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + " " + b;
}

// `part` follows `whole`, of the same number.
void merge(const FlightEntry& part, FlightEntry* whole) {
  if (part.operation != kCoalesced) {
    if (part.operation != whole->operation) whole->operation = kCoalesced;
    whole->sizes = joined(whole->sizes, part.sizes);
    whole->dtypes = joined(whole->dtypes, part.dtypes);
  }
  whole->done = part.done;
  whole->ran_ns = std::max(whole->ran_ns, part.ran_ns);
  whole->seen_ns = std::max(whole->seen_ns, part.seen_ns);
  whole->timeout_ms = std::max(whole->timeout_ms, part.timeout_ms);
}

// Of one group.
class Settled {
 public:
  void take(FlightEntry entry) {
    if (!entry.point_to_point && is_of_point_to_point(entry, all_.empty() ? nullptr : &all_.back()))
      take_whole(&entry);
    if (!all_.empty() && !entry.point_to_point && !all_.back().point_to_point &&
        entry.sequence == all_.back().sequence)
      merge(entry, &all_.back());
    else
      all_.push_back(std::move(entry));
  }

  std::vector<FlightEntry> finish(bool begins) {
    bool over = false;
    for (auto entry = all_.rbegin(); entry != all_.rend(); ++entry) {
      if (entry->point_to_point || entry->gloo) continue;
      over |= entry->done;
      entry->done = over;
    }
    if (!begins && !all_.empty()) all_.front().comparable = false;
    return std::move(all_);
  }

 private:
  // Of sends and receives: their states are its state.
  void take_whole(FlightEntry* entry) {
    entry->point_to_point = true;
    for (auto part = all_.rbegin(); part != all_.rend() && part->point_to_point &&
                                    part->point_to_point_sequence == entry->point_to_point_sequence;
         ++part) {
      part->done = entry->done;
      part->started |= entry->started;
    }
  }

  std::vector<FlightEntry> all_;
};

}  // namespace

void settle(FlightDump* dump) {
  std::map<std::string, Settled> groups;
  const bool begins = dump->entries.empty() || dump->entries.front().record <= 0;
  for (FlightEntry& entry : dump->entries) {
    Settled& group = groups[entry.group];
    group.take(std::move(entry));
  }
  dump->entries.clear();
  for (auto& [name, group] : groups)
    for (FlightEntry& entry : group.finish(begins)) dump->entries.push_back(std::move(entry));
  std::stable_sort(dump->entries.begin(), dump->entries.end(),
                   [](const FlightEntry& a, const FlightEntry& b) { return a.record < b.record; });
}

}  // namespace lockstep
