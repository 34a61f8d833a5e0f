#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scenarios/base/check.h"

namespace lockstep {

// A queue of events by time for a clock that never goes back: an event lies in the list of the
// highest bit in which its time differs from the last one taken, and moves down at most 63 times
// (Ahuja, Mehlhorn, Orlin, Tarjan: "Faster algorithms for the shortest path problem", 1990).
// Events of one time come in the order in which they were put in last.
template <class Event>
class RadixHeap {
 public:
  // time_ns: >= that of the last event taken.
  void push(int64_t time_ns, Event event) {
    const auto time = static_cast<uint64_t>(time_ns);
    LOCKSTEP_CHECK(time >= last_, "an event before the clock");
    lists_[list_of(time)].push_back({time, event});
    ++size_;
  }
  bool empty() const { return size_ == 0; }

  // The earliest; there must be one.
  std::pair<int64_t, Event> pop() {
    if (lists_[0].empty()) spread();
    const Entry entry = lists_[0].back();
    lists_[0].pop_back();
    --size_;
    return {static_cast<int64_t>(entry.time), entry.event};
  }

 private:
  struct Entry {
    uint64_t time;
    Event event;
  };
  size_t list_of(uint64_t time) const { return static_cast<size_t>(std::bit_width(time ^ last_)); }

  void spread() {
    size_t first = 1;
    while (lists_[first].empty()) ++first;
    std::vector<Entry> entries;
    entries.swap(lists_[first]);
    last_ = entries.front().time;
    for (const Entry& entry : entries) last_ = entry.time < last_ ? entry.time : last_;
    for (const Entry& entry : entries) lists_[list_of(entry.time)].push_back(entry);
    entries.clear();
    lists_[first].swap(entries);  // keeps its memory
  }

  std::vector<Entry> lists_[65];
  uint64_t last_ = 0;
  size_t size_ = 0;
};

}  // namespace lockstep
