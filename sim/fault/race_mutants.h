#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reducer/comm/collective.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Defects whose harm depends on who is faster, beside the code under test. They act on the sums of
// a backward, between begin_backward() and end_backward():
//   skip_wait         nobody waits for a bucket: its sum counts as done from the start
//   reuse_buffer      buckets are summed in one staging buffer, which the next one takes over
//                     whether or not the one before is done
//   unordered_launch  a pool of threads starts the sums, in any order
class RaceMutants : public CollectiveCommunicator {
 public:
  using CollectiveCommunicator::CollectiveCommunicator;
  virtual void begin_backward(int64_t step) = 0;
  virtual void end_backward() = 0;
};

// `pick(n)` says which of n alternatives comes next where the kinds leave it open: 0 is what would
// happen without the defect. `inner` must outlive the result. Other kinds of mutants do nothing.
std::unique_ptr<RaceMutants> make_race_mutants(Communicator& inner,
                                               const std::vector<MutantSpec>& mutants,
                                               std::function<size_t(size_t)> pick);

}  // namespace lockstep
