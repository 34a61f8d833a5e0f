#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>

#include "sim/analysis/pipeline_slowdown.h"
#include "sim/analysis/recording.h"
#include "sim/analysis/timeline.h"
#include "sim/judge/judge.h"
#include "sim/report/text_style.h"

namespace lockstep {

// What `lockstep analyze` says of the end of a recording.

// "rank 1 never came to bucket 0 in backward of step 6: ..." Empty for a whole one; without a
// newline.
std::string to_text(const RecordedEnd& end);
const char* to_word(RecordedEnd::Kind kind);
const char* to_word(RecordedEnd::How how);
nlohmann::ordered_json as_json(const RecordedEnd& end);
// Of as_json(), for a JSON schema.
nlohmann::ordered_json recorded_end_schema();

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

// What is to be said of a traced pipeline (docs/metrics.md, "Traces of others").
struct PipelineDocument {
  std::string file;
  int64_t steps = 0, dp_ranks = 0, stages = 0, ops = 0;
  PipelineSlowdown slowdown;
};

// Slowdowns of stages, of data-parallel ranks and of the worst workers; the answer last.
std::string pipeline_text(const PipelineDocument& document, const Style& style);
// scenarios/what_if_schema.json
nlohmann::ordered_json as_json(const PipelineDocument& document);

}  // namespace lockstep
