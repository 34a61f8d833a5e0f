#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/foreign/pipeline_trace.h"

namespace lockstep {

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
