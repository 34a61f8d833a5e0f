#pragma once

#include <memory>
#include <vector>

#include "sim/des/job_of_plan.h"
#include "sim/des/simulate.h"
#include "sim/fault/acts/schedule.h"
#include "sim/launch/executor.h"

namespace lockstep {

// Virtual time as a run leaves it behind: the same events of the same ranks in the same order, so
// that judge, metrics, traces and reports need not know which it was. Only what compares bits is
// missing: nothing was computed.
//
// A sink for simulate(): add() each step, then take(). Memory grows with ranks x steps; a run of
// more than kMostRecorded events is refused by whoever asks for records.
class VirtualRecords {
 public:
  VirtualRecords(const RunPlan& plan, const PlannedJob& planned);
  VirtualRecords(const VirtualRecords&) = delete;
  VirtualRecords& operator=(const VirtualRecords&) = delete;

  void add(const StepTrace& trace);
  // The outcome with its processes' ends: all well, or of the failure that `run` tells. The plan in
  // it asks for no lane.
  RunOutcome take(const SimulatedRun& run);

 private:
  void begin(size_t rank);
  int64_t wait_of(const PassTrace& pass, size_t rank) const;
  void add_receipts(const StepTrace& trace, size_t rank);
  // Returns the last collective's sequence number, which is the same for all ranks.
  uint32_t add_rank(const StepTrace& trace, size_t rank);
  void add_rebuild(const StepTrace& trace, const PassTrace& pass, size_t rank, uint32_t sequence);
  void add_buckets(const StepTrace& trace, const PassTrace& pass, size_t rank, uint32_t sequence);
  void add_gathers(const PassTrace& pass, size_t rank, uint32_t sequence);
  void add_units(const StepTrace& trace, const PassTrace& pass, size_t rank, uint32_t sequence);
  void add_unit_gather(const PassTrace& pass, size_t gather, size_t rank, uint32_t sequence);
  void add_unit_sum(const PassTrace& pass, size_t bucket, size_t rank, uint32_t sequence);
  void add_sum_between_copies(const PassTrace& pass, size_t bucket, size_t rank, uint32_t sequence);
  void add_average(const StepTrace& trace, size_t rank, int64_t optimizer_ns, uint32_t sequence);
  // A rank's part in a collective; kNever: it came to nothing.
  struct Call {
    int64_t arrival_ns, launched_ns, end_ns;
  };
  int64_t launched_at(const std::vector<std::vector<int64_t>>& launched_ns, size_t call,
                      size_t rank) const;
  void add_call(size_t rank, const Call& call, Phase phase, int32_t subject, uint64_t value,
                uint32_t sequence);
  void append(size_t rank, int64_t time_ns, EventKind kind, Phase phase, int32_t subject = -1,
              uint64_t value = 0, uint32_t sequence = 0);
  void end_run(const SimulatedRun& run, RunOutcome* outcome);
  // Reducer invariant has nobody to exchange anything with.
  bool alone() const { return planned_.job.shards && planned_.job.ranks == 1; }

  const RunPlan& plan_;
  const Scenario scenario_;
  const std::shared_ptr<const std::vector<FaultMoments>> moments_;  // of the scenario's faults
  const PlannedJob& planned_;
  const bool c10d_;             // LibTorch's reducer, which calls more in construction
  const uint8_t dtype_, wire_;  // of parameters; of buckets, as the comm hook sends them
  int32_t step_ = 0;
  uint32_t sequence_ = 0;  // of the last collective before the step
  std::vector<RankRecords> ranks_;
};

// Events of a job on all its ranks.
int64_t recorded_events(const PlannedJob& planned);
inline constexpr int64_t kMostRecorded = 20'000'000;  // 640 MB

}  // namespace lockstep
