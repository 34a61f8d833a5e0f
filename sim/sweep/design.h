#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/timeline.h"
#include "sim/plan/plan.h"

namespace lockstep {

// What is measured, and in which order.

// One combination: a line of the table.
struct Cell {
  int64_t world_size = 1;
  std::string reducer;
  std::optional<double> cap_mb;      // MiB; nothing for a reducer that has no cap
  std::vector<double> same_caps_mb;  // others that give the same buckets: measured once
  // What else is varied: ("/reducer/find_unused_parameters", "true").
  std::vector<std::pair<std::string, std::string>> varied;
  RunPlan plan;
  // Where one process has all replicas, so that lane replica has nothing to compare: a short run
  // that is not measured, whose lane float64 says whether what is measured is right.
  std::optional<RunPlan> check;
};

// "world_size=2 reducer=bucketed bucket_cap_mb=4 find_unused_parameters=true"
std::string label_of(const Cell& cell);

// The same without the cap: cells that differ in nothing else are compared with each other.
std::string group_of(const Cell& cell);

// Merges neighbours whose buckets are the same: of them DDP's default stays, else the first.
std::vector<Cell> merged_by_layout(std::vector<Cell> cells);

// The order in which round `round` (from 0) measures cells 0 .. count - 1: shuffled anew in every
// second round, and backwards in the one after it, so that a machine that becomes slower at a
// steady rate disturbs all alike (A B B A).
std::vector<size_t> order_of_round(size_t count, int64_t round, uint64_t seed);

// "1,2.5,25" in MiB. Bad input: what is no number, not above 0, above 65536, or given twice.
Expected<std::vector<double>> parse_caps(const std::string& text);
// "2,4". Bad input: what is no whole number from 1 to 4096, or given twice.
Expected<std::vector<int64_t>> parse_worlds(const std::string& text);
// "bucketed,c10d". Bad input: what is no reducer, with a suggestion, or given twice.
Expected<std::vector<std::string>> parse_reducers(const std::string& text);

// How long a backward takes with its buckets, as a max-plus sum: collectives go one after another,
//   E_b = max(ready_b, E_{b-1}) + alpha + beta x bytes_b,   T = max(T_bwd, E_last),
// where a bucket is ready when the last of its gradients is. The bytes of the last bucket, the
// tail, can hide behind nothing, which is why they decide (docs/sweep.md).
struct TailModel {
  std::vector<double> ready_ms;  // by parameter of the manifest, from the begin of backward
  double backward_ms = 0;        // T_bwd
  double alpha_ms = 0, beta_ms_per_mb = 0;
};

// Of buckets in launch order: T.
double predicted_ms(const TailModel& model, const BucketLayout& layout,
                    const std::vector<int64_t>& bucket_bytes);

// What a run shows: T_bwd from its phases, alpha and beta by least squares over its buckets, each
// from when it was next on the wire until its end, medians over steps after `warmup`. Nothing where
// no step or no bucket was recorded.
std::optional<TailModel> calibrated(const RunPlan& plan, const Timeline& timeline, int64_t warmup);

// Of these caps the one with which backward is shortest; of equals the smallest.
struct CapPrediction {
  double cap_mb = 0, backward_ms = 0;
};
CapPrediction best_of(const RunPlan& plan, const TailModel& model, const std::vector<double>& caps);

// The caps to measure: DDP's default, the best as predicted (of equals the smallest), and
// others so that neighbours are about as far apart as each other on a logarithmic scale. Ascending;
// at most `most` of them.
std::vector<double> caps_to_measure(const RunPlan& plan, const TailModel& model, size_t most);

}  // namespace lockstep
