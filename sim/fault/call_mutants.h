#pragma once

#include <memory>
#include <vector>

#include "reducer/comm/collective.h"
#include "scenarios/scenario.h"
#include "sim/record/recorder.h"

namespace lockstep {

// Decorator for defects in how a rank calls collectives, outside the recording one, so that records
// say what was called: skip_wait, other_order, reorder_buckets, other_type_call, empty_sparse,
// reuse_buffer, no_deadline, forget_used. Kinds are described in scenarios/schema.json. Each leaves
// a receipt before it acts; all else passes through. Buckets are numbered by the sums of a
// backward.
class CallMutants : public CollectiveCommunicator {
 public:
  using CollectiveCommunicator::CollectiveCommunicator;
  virtual void begin_backward() = 0;
  virtual void end_backward() = 0;
};

// `inner` must outlive it.
std::unique_ptr<CallMutants> make_call_mutants(Communicator& inner,
                                               const std::vector<MutantSpec>& mutants,
                                               Recorder& recorder);

}  // namespace lockstep
