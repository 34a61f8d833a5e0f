#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "scenarios/base/verdict.h"
#include "sim/report/text_style.h"
#include "sim/tools/soak/ledger.h"

namespace lockstep {

// What a soak says: of the slices of one call, or of all that were merged.
struct SoakReport {
  std::vector<SoakSlice> slices;  // of the ledger, those of earlier calls included
  std::vector<SoakSlice> judged;  // that the verdict is of
  std::string stopped;            // why it ended early
  int signal = 0;
};

// fail: there is a failure. inconclusive: something is undecided or broke down, or nothing was run.
Verdict verdict_of(const SoakReport& report);
int exit_code_of(const SoakReport& report);
std::string soak_answer(const SoakReport& report);  // "pass: 12,400 runs in 0.52 h, 0 failures"

std::string soak_text(const SoakReport& report, const Style& style);
std::string soak_markdown(const SoakReport& report);       // the page: totals per commit, failures
nlohmann::ordered_json as_json(const SoakReport& report);  // scenarios/soak_schema.json

}  // namespace lockstep
