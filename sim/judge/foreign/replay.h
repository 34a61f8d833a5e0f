#pragma once

#include <cstddef>
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

 private:
  explicit TraceReplay(const PipelineTrace& trace) : trace_(&trace) {}

  const PipelineTrace* trace_;
  std::vector<std::vector<size_t>> after_;     // by operation
  std::vector<std::vector<size_t>> meetings_;  // each after all that it waits for
  std::vector<size_t> step_;                   // by operation: place of its step
};

}  // namespace lockstep
