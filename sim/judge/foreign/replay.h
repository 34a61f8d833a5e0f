#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/foreign/pipeline_trace.h"

namespace lockstep {

// A traced pipeline in virtual time, with any durations: what meets begins together, when all of
// it has what it waits for (dependencies.h), and then takes each operation its own time. Steps
// begin at 0, and nothing else costs time.
class TraceReplay {
 public:
  // Bad input, without a file, as dependencies_of(), or where operations wait for each other.
  // `trace` must outlive it.
  static Expected<TraceReplay> of(const PipelineTrace& trace);

  // Mean over steps of the end of a step's last operation. As many durations as operations.
  double mean_step_us(const std::vector<double>& durations_us) const;

  // The same where one data-parallel rank has its own durations and all others the usual ones, for
  // each rank in turn. Ranks with usual durations that go the same way through a step are one: of
  // each such class one is replayed beside the rank that is asked for, so that all answers together
  // take ranks x classes, not ranks x ranks.
  std::vector<double> only_us(const std::vector<double>& own_us,
                              const std::vector<double>& usual_us) const;

 private:
  explicit TraceReplay(const PipelineTrace& trace) : trace_(&trace) {}
  // One data-parallel rank's operations in one step, in the order of meetings_.
  struct Passed {
    size_t meeting = 0, op = 0;
    bool operator<(const Passed& other) const { return meeting < other.meeting; }
  };
  using Way = std::vector<Passed>;
  std::vector<Way> ways() const;  // by step, then rank
  // Who has its own durations.
  struct OneRank {
    int64_t dp_rank = 0;
    const std::vector<double>&own_us, &usual_us;
  };
  // When the last operation of a way ends; `ends`, by operation, is room to work in.
  double end_us(const Way& way, const OneRank& one, std::vector<double>* ends) const;
  // What decides how long it takes: equal of ranks that are alike.
  std::vector<int64_t> signature_of(const Way& way, const std::vector<double>& usual_us) const;

  const PipelineTrace* trace_;
  std::vector<std::vector<size_t>> after_;     // by operation
  std::vector<std::vector<size_t>> meetings_;  // each after all that it waits for
  std::vector<size_t> step_;                   // by operation: place of its step
};

}  // namespace lockstep
