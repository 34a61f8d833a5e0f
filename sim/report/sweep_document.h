#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/report/machine.h"
#include "sim/report/text_style.h"
#include "sim/sweep/baseline.h"
#include "sim/sweep/result.h"

namespace lockstep {

// All that one sweep has to say.
struct SweepDocument {
  std::string scenario, file;
  uint64_t seed = 0;
  Machine machine;
  Libraries libraries;
  int64_t steps = 0, warmup = 0, rounds = 0;  // as asked for
  std::vector<CellResult> lines;
  std::vector<Contrast> caps, reducers;
  // With caps auto: of each group the cap that the tail model finds best, and its backward.
  struct Prediction {
    std::string group;
    double cap_mb = 0, backward_ms = 0;
  };
  std::vector<Prediction> predictions;
  // By virtual time on a machine that was fitted to the runs of one line.
  struct Simulated {
    std::string calibrated_on;                   // label of that line
    std::vector<std::optional<double>> step_ms;  // by line; none: it cannot be simulated
    std::vector<std::string> why_not = {};       // by line, where one has no step time
  };
  std::optional<Simulated> simulated;
  std::string not_simulated;  // why no line is, although one was there to fit a machine to
  MachineVerdict watch;
  bool allow_busy = false;
  std::vector<std::pair<Threshold, Judgement>> thresholds;
  std::optional<Judgement> baseline;
  std::optional<Reference> reference;
  int64_t runs = 0, wrong = 0;
  std::vector<std::string> broken;  // runs that gave no numbers, and why
  int signal = 0;                   // that interrupted it
  int64_t duration_ms = 0;
  Verdict verdict = Verdict::inconclusive;
  int exit_code = 0;
};

// How far the simulated lines are from what was measured, but for the one they come from.
struct PredictionError {
  int64_t lines = 0;
  double mean = 0, largest = 0;  // |predicted / measured - 1|
};
// predicted / measured - 1; nothing for a line that is not simulated.
std::optional<double> prediction_error(const SweepDocument& document, size_t line);
PredictionError prediction_error(const SweepDocument& document);
// Why a line has no step time in virtual time; empty: it has one, or nothing could have one.
std::string why_not_predicted(const SweepDocument& document, size_t line);

// Fills in what follows from the rest: wrong, verdict, exit code.
void conclude(SweepDocument* document);

// Head, table with one line a combination, what follows from it, the answer last.
std::string sweep_text(const SweepDocument& document, const Style& style);
std::string sweep_answer(const SweepDocument& document);
std::string sweep_csv(const SweepDocument& document);
std::string sweep_markdown(const SweepDocument& document);
// scenarios/sweep_schema.json
nlohmann::ordered_json as_json(const SweepDocument& document);

}  // namespace lockstep
