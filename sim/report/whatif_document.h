#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/report/style.h"
#include "sim/whatif/prediction.h"

namespace lockstep {

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
