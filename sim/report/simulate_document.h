#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/long_run.h"
#include "sim/des/simulate.h"
#include "sim/judge/judge.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"

namespace lockstep {

// One job in virtual time.
struct SimulatedLine {
  std::string scenario, label;
  int64_t ranks = 1, steps = 1;
  std::string reducer, algorithm, engine;
  std::optional<double> cap_mb;  // MiB; none: the reducer has no cap
  // Of a prediction: other caps that were asked for and give the same buckets.
  std::vector<double> same_caps_mb = {};
  std::optional<double> step_error = {};  // of numbers.step_ms, a part: the machine's
  // Of a prediction: on the machine's alternatives, as multiples of numbers.step_ms.
  std::vector<double> of_alternatives = {};
  int64_t buckets = 0;
  double tail_mb = 0;  // 10^6 bytes
  SimulatedNumbers numbers;
  std::optional<double> efficiency;      // of a prediction: the step without communication / this
  std::optional<double> straggler_ms;    // what the scenario's faults cost a step
  std::optional<Chance> timeout_chance;  // a step
  struct OverDays {
    LongRun run;
    bool best_interval = false;  // Daly's, not the user's
    LongRunNumbers numbers;
    double expected_ns = 0;
  };
  std::optional<OverDays> over_days;  // on hosts that fail
  std::optional<SimulatedFailure> failure;
  std::vector<std::string> notes;
  std::optional<RunResult> judged;  // where every rank was recorded
  std::string timeline = {};        // likewise, for --html alone: JSON of sim/report/html
};

// Which cap is fastest at one world size, by a prediction.
struct CapAdvice {
  int64_t ranks = 1;
  double best_mb = 0;              // the least step time
  std::optional<double> cap_mb;    // recommended; none: nothing is faster for sure
  std::vector<double> alike_mb;    // that cannot be told from the fastest
  std::optional<double> usual_mb;  // the scenario's own, where it is among the caps
  std::optional<double> gain;      // by what part the fastest is faster than that
  std::optional<double> gain_error;
  std::string text;
};

// All that one `lockstep simulate` has to say.
struct SimulateDocument {
  uint64_t seed = 0;
  Machine machine;        // that simulates
  std::string simulated;  // machine that is simulated, in words
  std::vector<SimulatedLine> lines;
  bool prediction = false;
  std::vector<CapAdvice> advice;  // of a prediction over caps, ascending world sizes
  double elapsed_s = 0;
  int exit_code = 0;
  std::string answer;  // the last line
};

nlohmann::ordered_json as_json(const SimulateDocument& document);
// The table, what went wrong, and the last line.
std::string to_text(const SimulateDocument& document, const Style& style);

// A prediction as a picture: step time over caps, a series a world size, with the recommended cap;
// over world sizes where they vary alone, and beside it the efficiency where both do. Bands reach
// from the median step to the 95th percentile. Lines without a step are left out.
std::string simulate_svg(const SimulateDocument& document);

}  // namespace lockstep
