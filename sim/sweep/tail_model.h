#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/judge/timeline.h"
#include "sim/plan/plan.h"

namespace lockstep {

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
