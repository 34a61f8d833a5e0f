#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/judge/judge.h"
#include "sim/judge/recorded_end.h"
#include "sim/judge/timeline.h"

namespace lockstep {

// What `lockstep analyze` says of a run that lockstep_record.py recorded, for --json.
struct RecordedAnalysis {
  std::string folder;  // as given
  int64_t world_size = 0;
  int exit_code = 0;
  RunResult result = {};  // its metrics and straggler, of whole steps
  RecordedEnd end = {};
  const Timeline* intervals = nullptr;  // of --metrics; null: without
};
nlohmann::ordered_json as_json(const RecordedAnalysis& analysis);

// Its schema; metrics and straggler are those of results.
std::string recorded_analysis_schema();

}  // namespace lockstep
