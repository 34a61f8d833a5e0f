#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/judge/foreign/slowdown.h"
#include "sim/report/style.h"

namespace lockstep {

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
