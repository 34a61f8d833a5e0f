#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/job.h"

namespace lockstep {

// When a collective ends on each rank, from when each of them starts it: three ways to know, which
// agree where all apply (tests/sim/des/engines_test.cc). Starts and ends by rank, in nanoseconds.

// By formula: all at once, collective_ns() after the last start. Also of fewer starts than ranks,
// where some stand for many. bytes: of a bucket, which the job's own operation brings together.
std::vector<int64_t> ends_by_formula(const Job& job, const std::vector<int64_t>& starts,
                                     int64_t bytes);
// The same of the gathering of a bucket of virtual shards, or of a unit's parameters.
std::vector<int64_t> ends_of_gather(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes);

// Round by round. In each round of a ring rank r sends a part to r + 1 over its own link,
//   x_r(k+1) = max(x_r(k) + c_r, x_{r-1}(k) + c_{r-1}),
// in each of halving-doubling and recursive doubling two exchange, x(k+1) = max of both + c_k.
// Ends all together at max start + 2(p-1)c where links are equal, at most that with the largest c
// where they are not. Algorithms without rounds here, tables, and exchanges of virtual shards: by
// formula.
std::vector<int64_t> ends_by_rounds(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes);

// From a rank to the next one of a ring.
LinkCost link_of(const Job& job, size_t rank);
// How long the wire is busy with a bucket's collective, that of the slowest link of its own.
int64_t wire_ns(const Job& job, Operation operation, int64_t bytes);

// Does ends_by_rounds() go through rounds?
bool has_rounds(const Job& job);

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

// Engine L0: a collective as the messages that it is made of, each an event. A rank sends its next
// message when its link is free, what must come before it has come, and its own part has started;
// messages of a round go one after another. The same answer as by rounds, and the only way to see
// how far a collective has come when somebody gives up.

// `messages` (may be null) is increased by those that arrived.
std::vector<int64_t> ends_by_events(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes, int64_t* messages);

// Messages that each rank has got by `at_ns`, of how many: partial progress.
struct MessageProgress {
  std::vector<int64_t> got;
  int64_t of = 0;
};
MessageProgress progress_at(const Job& job, const std::vector<int64_t>& starts, int64_t bytes,
                            int64_t at_ns);

}  // namespace lockstep
