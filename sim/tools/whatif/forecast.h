#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/step_model.h"
#include "sim/analysis/timeline.h"
#include "sim/report/text_style.h"
#include "sim/sweep/statistics.h"

namespace lockstep {

// What a run's steps would have taken without the lateness of some ranks: each step is replayed
// (sim/analysis/step_model.h) with the other ranks' durations in place of theirs.

// The steps that can be replayed; the run's first one warms up and is not among them.
struct ReplayedSteps {
  std::vector<StepModel> models;
  std::vector<double> measured_ms;  // by model: of the rank that took longest
  size_t ranks() const { return models.empty() ? 0 : models.front().ranks(); }
};
ReplayedSteps replayed_steps_of(const Timeline& timeline);

// Over steps: a mean, with an interval of kConfidence (sim/sweep/statistics.h), the median, and
// the least one, which a busy machine disturbs least.
struct StepTime {
  Estimate mean_ms;
  double median_ms = 0, least_ms = 0;
};

struct Prediction {
  std::vector<size_t> ranks;  // whose lateness is taken away, ascending
  StepTime step;              // without it
  StepTime saving;            // as it was - without; below 0 where these ranks are the quicker ones
  // What only their work in that phase costs; "link": only their delays in the queue for the wire.
  // Means over steps, largest first; what costs less than kLeastMs is left out.
  struct Part {
    std::string phase;
    double cost_ms = 0;
  };
  std::vector<Part> parts;
};

struct Forecast {
  size_t steps = 0, ranks = 0;
  StepTime measured, replayed;          // as it was
  std::vector<Prediction> predictions;  // the most saving first
};

// One prediction for `fixed`, or, where that is empty, one for each rank in turn. Nothing where
// there is nothing to predict from: no step of more than one rank. `fixed` are ranks of the run,
// ascending, not all of them.
std::optional<Forecast> forecast_of(const ReplayedSteps& steps, const std::vector<size_t>& fixed,
                                    uint64_t seed);

// The replay is further from what was measured than predictions are from the truth.
inline constexpr double kReplayOff = 0.05;
bool replay_is_off(const Forecast& forecast);

nlohmann::ordered_json as_json(const Forecast& forecast);

// What `lockstep whatif` has to say: of each run that was kept, what its steps would have taken
// without some ranks' lateness.
struct WhatIfDocument {
  struct Run {
    std::string run_dir, name, label;  // as in RunResult
    std::optional<Forecast> forecast;  // absent: it has no step to predict from
  };
  std::vector<Run> runs;
  int exit_code = 0;  // kExitInconclusive where a run has no forecast
};

// A table for each run, and the answer last.
std::string whatif_text(const WhatIfDocument& document, const Style& style);
// scenarios/what_if_schema.json
nlohmann::ordered_json as_json(const WhatIfDocument& document);

}  // namespace lockstep
