#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/analysis/pipeline_trace.h"

namespace lockstep {

// What waits for what in a traced pipeline, by places in PipelineTrace::ops. In each step:
// * a worker computes in the order of the trace; its first forward waits for the parameters;
// * receives, and sends, of a direction go one after another; forward i waits for receive i, send i
//   for forward i, and receive i for forward i-1, backwards likewise; the first transfers of
//   gradients wait for the forward before the last one that comes before the first backward;
// * after its last compute come gc, layernorm-grads-all-reduce, embedding-grads-all-reduce,
//   grads-reduce-scatter, optimizer-clip-main-grad and optimizer, one after another, those that the
//   trace has;
// * a send and its receive meet, data-parallel ranks of a stage meet to gather parameters and to
//   reduce gradients, the first and the last stage to reduce the embedding's, all to clip.
struct Dependencies {
  std::vector<std::vector<size_t>> after;     // by op: what has to end before it begins
  std::vector<std::vector<size_t>> meetings;  // ops that begin together; each op is in one
};

// Bad input, without a file, where a part is missing, comes twice or has nobody to meet.
Expected<Dependencies> dependencies_of(const PipelineTrace& trace);

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

// What stragglers cost in a traced pipeline, by replaying it with other durations (replay.h).
// T: as traced. T_ideal: compute replaced by the mean, communication by the median, of its kind
// over all data-parallel ranks, stages and steps. (Formulas of "Understanding stragglers in large
// model training"; its names of the numbers in brackets.)
struct PipelineSlowdown {
  struct Worker {
    int64_t dp_rank = 0, stage = 0;
    double slowdown = 1;  // the lesser one of its data-parallel rank's and its stage's
  };
  double step_ms = 0, ideal_ms = 0;  // T, T_ideal: means over steps
  double slowdown = 1;               // T / T_ideal                                     [S]
  // (T - T with these made ideal) / (T - T_ideal); absent where nothing is lost.
  std::optional<double> by_worst_workers;  // [M_W]
  std::optional<double> by_last_stage;     // [M_S]
  size_t worst = 0;                        // how many workers are 3 % of them, rounded up
  std::vector<Worker> workers;             // the worst first; of equals the lower stage and rank
  // T_ideal with only its own operations as traced, / T_ideal.
  std::vector<double> dp_ranks, stages;
};

inline constexpr size_t kWorstPercent = 3;

// Bad input, without a file, where the trace cannot be replayed or nothing in it takes time.
Expected<PipelineSlowdown> slowdown_of(const PipelineTrace& trace);

nlohmann::ordered_json as_json(const PipelineSlowdown& slowdown);

}  // namespace lockstep
