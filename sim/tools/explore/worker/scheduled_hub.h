#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/communicator.h"
#include "reducer/local/sum_ranges.h"
#include "sim/tools/explore/scheduler.h"

namespace lockstep {

class ScheduledWork;

// Where the ranks of a scheduled group meet: a communicator of which every call is a point of the
// schedule and every completion an act of its own, rank by rank, in the order of the calls. From
// the call to the completion a buffer that a collective writes holds nothing but set bits (NaN in
// every floating-point type): who reads it has NaN, and who writes it, changes what is only read,
// or frees either is found when the completion is delivered. Deadlines do not count: there is no
// time. Thread rule: as Scheduler.
class ScheduledHub : public Deliveries {
 public:
  ScheduledHub(int64_t world_size, SumOrder order, Scheduler& scheduler);
  ~ScheduledHub() override;
  ScheduledHub(const ScheduledHub&) = delete;
  ScheduledHub& operator=(const ScheduledHub&) = delete;

  // Forgets all collectives. Between schedules.
  void clear();
  CommWorkPtr submit(int64_t rank, CollectiveCall call);

  bool can_deliver(int64_t rank) const override;
  void deliver(int64_t rank) override;
  std::string next_delivery(int64_t rank) const override;

 private:
  // One rank's part of a collective.
  struct Part {
    CollectiveCall call;    // of the rank's own tensors
    CollectiveCall copies;  // with what it gave, and then what it gets
    std::shared_ptr<ScheduledWork> work;
  };
  struct Meeting {
    std::vector<Part> parts;
    int64_t arrived = 0;
  };

  Meeting& meeting(uint64_t sequence);
  void complete(int64_t last_rank, Meeting& meeting);
  void give(int64_t rank, Part& part);
  bool buffer_is_untouched(int64_t rank, const Part& part);
  void fail(const char* kind, int64_t rank, const Part& part, const char* what);

  const int64_t world_size_;
  const SumOrder order_;
  Scheduler& scheduler_;
  std::deque<Meeting> meetings_;
  uint64_t first_ = 0;               // sequence of meetings_.front()
  std::vector<uint64_t> arrived_;    // calls of each rank
  std::vector<uint64_t> delivered_;  // completions of each rank
};

// A rank's end of it.
std::unique_ptr<Communicator> make_scheduled_communicator(int64_t rank, int64_t world_size,
                                                          ScheduledHub& hub);

// c10d::Reducer waits for its buckets at the end of a backward inside LibTorch, where a rank that
// waits cannot give its token away. This decorator waits for them right before, as the reducer
// would: on this rank's thread, after its last bucket was started, in the engine's callbacks of the
// same backward. What is waited for is what the reducer was given, mutants included.
std::unique_ptr<Communicator> make_native_waits(Communicator& inner);

}  // namespace lockstep
