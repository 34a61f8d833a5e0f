#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/report/ci/test_report.h"
#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/trace_overlap.h"

namespace lockstep {

// What was read.
struct SourcesRead {
  int64_t dumps = 0, logs = 0;
  std::vector<TraceShare> traces = {};  // by rank
};

// The answer of `lockstep explain`: its exit code, as text whose last line is the sentence, as
// --json (scenarios/explain_schema.json) with the path of the scenario that was written (empty:
// none), and as one case of --junit, named `path`.
int explain_code(const FlightFinding& found);
std::string explain_text(const FlightFinding& found, const SourcesRead& counts);
nlohmann::ordered_json explain_json(const FlightFinding& found, const SourcesRead& counts,
                                    const std::string& scenario);
TestReport explain_report(const FlightFinding& found, const SourcesRead& counts,
                          const std::string& path);

}  // namespace lockstep
