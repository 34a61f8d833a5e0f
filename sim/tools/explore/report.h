#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "sim/report/machine.h"
#include "sim/report/text_style.h"
#include "sim/tools/explore/result.h"

namespace lockstep {

// One scenario whose schedules were explored.
struct ExploredScenario {
  std::string name, label, file;  // label: the axis values of the run
  std::string reducer;
  std::string again;       // command that explores it again
  int64_t parameters = 0;  // trained, in the whole scenario; 0: not known
  bool expects_finding = false;
  ExploreResult result;
  Verdict verdict = Verdict::inconclusive;  // pass: nothing was found
  std::optional<bool> met;                  // against the expectation; nothing: undecided
};

// All that one `lockstep explore` has to say.
struct ExploreDocument {
  ExploreSpec spec;
  Machine machine;
  Libraries libraries;
  std::vector<ExploredScenario> scenarios;
  int signal = 0;  // that interrupted it
  int64_t duration_ms = 0;
  Verdict verdict = Verdict::inconclusive;  // against the expectations
  int exit_code = 0;
};

// Fills in what follows from the rest: verdicts and exit code. No finding counts for nothing unless
// all schedules that were asked for were run.
void conclude(ExploreDocument* document);

// One line a scenario, then every finding with its smallest schedule, the answer last.
std::string explore_text(const ExploreDocument& document, const Style& style);
std::string explore_answer(const ExploreDocument& document);
// scenarios/explore_schema.json
nlohmann::ordered_json as_json(const ExploreDocument& document);

}  // namespace lockstep
