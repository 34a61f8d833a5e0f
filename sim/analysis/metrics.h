#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/step_model.h"
#include "sim/analysis/timeline.h"

namespace lockstep {

// The one place of every formula (docs/metrics.md): r a rank, b a collective, times on one clock.

// Of a collective that all ranks entered.
int64_t skew_ns(const Collective& b);               // max_r arrival - min_r arrival
int64_t wait_ns(const Collective& b, size_t rank);  // max_q arrival(q) - arrival(r), >= 0
// end(r) - max_q arrival(q). Below 0 for a rank that needs nobody else, as the root of a broadcast.
int64_t transfer_ns(const Collective& b, size_t rank);
// Who came last alone, and by how much after the one before: nobody where two came last together.
struct Latest {
  std::optional<size_t> rank;
  int64_t gap_ns = 0;  // latest - second latest arrival
};
Latest latest_of(const Collective& b);

// Of one rank in one step, or their mean over steps.
struct RankNumbers {
  double ready_ms = 0;        // begin of the step to its last bucket being complete
  double arrival_ms = 0;      // ... to its entering the last bucket's collective
  double wait_ms = 0;         // | U_b [arrival, last arrival] |
  double transfer_ms = 0;     // | U_b [last arrival, end] |
  double compute_ms = 0;      // | forward U backward |
  double comm_ms = 0;         // | U_b [arrival, end] |
  double overlapped_ms = 0;   // | comm AND compute |
  double exposed_ms = 0;      // | comm \ compute |
  double ddp_overlap_ms = 0;  // first bucket's arrival to the end of backward, as PyTorch logs it
  double blame_ms = 0;        // sum over b of gap_ns where it came last
  double work_ms = 0;         // its own time: the step less what it waited for (what_if.h)
  double step_ms = 0;         // begin to end
  // overlapped / comm; nothing where nothing was communicated.
  std::optional<double> overlap() const;
};

struct StepMetrics {
  int64_t step = 0;
  std::vector<RankNumbers> ranks;
  double skew_ms = 0;  // the largest of its collectives
  // By what-if, all ranks beginning together; nothing where ranks went other ways through it.
  std::optional<double> step_ms, ideal_ms;
  std::vector<double> only_ms;  // by rank: T of S_r
  std::vector<size_t> spikes;   // ranks whose work is beyond kSpike times their own median
};

struct RankMetrics {
  RankNumbers mean;
  std::optional<double> overlap;           // over all steps together
  std::optional<double> slowdown;          // S_r: only this rank kept as it was
  std::optional<double> relative_score;    // best rank's median work / own median work
  std::optional<double> individual_score;  // own best work / own median work
};

struct Metrics {
  std::vector<int64_t> steps;  // of which the means are: whole ones, without the run's first
  std::vector<Timeline::LeftOut> left_out;
  double clock_uncertainty_ms = 0;
  double skew_ms = 0;                       // mean of the steps' largest
  std::optional<double> step_ms, ideal_ms;  // means
  std::optional<double> slowdown;           // S = step_ms / ideal_ms
  std::vector<RankMetrics> ranks;
  std::vector<StepMetrics> per_step;
};

// A rank's step stands out where it worked more than this times its own median, and kLeastMs.
inline constexpr double kSpike = 1.5;
// A straggler by its scores (their default of 0.75 would miss a rank that is 1.2 times slower).
inline constexpr double kLeastScore = 0.9;

Metrics metrics_of(const Timeline& timeline);

// The run's first step warms up: its steps without it, as models. A step that cannot be one is
// left out.
std::vector<StepModel> models_of(const Timeline& timeline);

// runs[].metrics; with `intervals` (may be null) every step, collective and phase as well.
nlohmann::ordered_json as_json(const Metrics& metrics, const Timeline* intervals);

}  // namespace lockstep
