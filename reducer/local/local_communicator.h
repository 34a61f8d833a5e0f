#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"
#include "reducer/local/sum_ranges.h"

namespace lockstep {

// Where the threads of one group meet. The rank that arrives last at an operation does its work and
// completes all ranks' works; operations thus run in the order of the calls by themselves.
class LocalHub {
 public:
  explicit LocalHub(int64_t world_size);

  // Operation number `sequence` (from 0) of `rank`. The work fails at its deadline, when ranks
  // disagree on the operation, or when a rank that is missing has left.
  std::shared_ptr<PendingWork> arrive(int64_t rank, uint64_t sequence, SumOrder order,
                                      CollectiveCall call);

  // `rank` takes part in no operation from `sequence` on: those that wait for it fail. What it has
  // entered before still gets its part, but tells `rank` nothing from now on: after the return
  // nothing of the rank's is called. Blocks for as long as others' callbacks take.
  void leave(int64_t rank, uint64_t sequence);

 private:
  struct Meeting {
    std::vector<CollectiveCall> calls;
    std::vector<std::shared_ptr<PendingWork>> works;  // null: not arrived
    std::vector<SumOrder> orders;
    int64_t arrived = 0;
    Deadline deadline = kNoDeadline;
    DeadlineTimer::Id timer;
  };

  // Why it fails, and the one rank whose doing it is; empty: it does not.
  struct Problem {
    std::string why;
    int64_t peer = -1;
  };
  Problem why_impossible(const Meeting& meeting, uint64_t sequence) const;
  void expire(uint64_t sequence);
  static Problem disagreement(const Meeting& meeting);
  void ended();  // what was taken out of meetings_ is done
  static void finish(Meeting meeting);
  static void fail(const Meeting& meeting, CommFailure kind, const Problem& problem);

  const int64_t world_size_;
  std::mutex mutex_;
  std::map<uint64_t, Meeting> meetings_;
  std::vector<uint64_t> left_at_;  // operations from this number on lack the rank
  bool broken_ = false;            // an operation failed
  int64_t ending_ = 0;             // taken out of meetings_, but not done
  std::condition_variable idle_;   // ending_ is 0
  DeadlineTimer timer_;            // last: its thread ends first
};

// Does the work of an operation for which all ranks are there. calls: by rank, agreed.
void run_together(const std::vector<CollectiveCall>& calls, SumOrder order);

}  // namespace lockstep
