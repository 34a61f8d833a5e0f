#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/sweep/result.h"
#include "sim/tools/program/sweep_model.h"

namespace lockstep {

// Step times of caps that were not measured, and how far to trust them: each cap that was measured
// is predicted as well, from the traced runs of the others alone.

// Beyond it predictions say nothing of which cap is faster.
inline constexpr double kMostOff = 0.1;

struct PredictedCap {
  double cap_mb = 0;  // MiB
  int64_t buckets = 0;
  double step_ms = 0;
  std::optional<double> measured_ms;  // nothing: only predicted
  double off() const { return measured_ms ? step_ms / *measured_ms - 1 : 0; }
};

struct ProgramPrediction {
  std::string why;                 // why nothing is predicted; empty: it is
  std::vector<PredictedCap> caps;  // ascending; of those that give the same buckets one
  double mean_off = 0;             // |off()| of those that were measured
  double largest_off = 0;
  double largest_off_mb = 0;
  double tracing = 0;                 // by how much a step of the traced runs took longer
  std::optional<ProgramModel> model;  // of all traced runs
  int64_t runs = 0;                   // that were traced

  int64_t first_bucket_bytes = 0;  // of the fastest that was measured

  const PredictedCap* unmeasured() const;  // the fastest that is only predicted; may be null
  const PredictedCap* measured() const;    // the fastest that was measured
};

// Caps between neighbours of these, evenly spread on a logarithmic scale, of two digits each.
std::vector<double> caps_between(const std::vector<double>& measured);

// `lines`: what was measured; `runs`: traced ones of each line's cap; `folder`: for files in
// between, there and empty.
ProgramPrediction predict_caps(const std::vector<CellResult>& lines,
                               const std::vector<TracedProgram>& runs,
                               const std::vector<std::string>& command, const std::string& folder,
                               int64_t cores);

// Why nothing is concluded of predictions, or empty.
std::string why_undecided(const ProgramPrediction& prediction);
// What they say, of which cap, and that it was not measured.
std::string answer_of(const ProgramPrediction& prediction);

}  // namespace lockstep
