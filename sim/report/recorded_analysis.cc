#include "sim/report/recorded_analysis.h"

#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/judge/metrics.h"
#include "sim/report/recorded_end.h"
#include "sim/report/version.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

Json as_json(const RecordedAnalysis& analysis) {
  const RunResult& result = analysis.result;
  return {{"schema_version", 1},
          {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()},
          {"exit_code", analysis.exit_code},
          {"recording", analysis.folder},
          {"world_size", analysis.world_size},
          {"end", as_json(analysis.end)},
          {"metrics", as_json(*result.metrics, analysis.intervals)},
          {"straggler", result.straggler ? as_json(*result.straggler) : Json(nullptr)}};
}

std::string recorded_analysis_schema() {
  const Json results = Json::parse(result_schema_text());
  const Json& run = results["definitions"]["run"]["properties"];
  Json properties = {{"schema_version", {{"const", 1}}},
                     {"lockstep_version", {{"type", "string"}}},
                     {"commit", {{"type", "string"}}},
                     {"exit_code", {{"type", "integer"}, {"minimum", 0}}},
                     {"recording", {{"description", "The folder, as given"}, {"type", "string"}}},
                     {"world_size", {{"type", "integer"}, {"minimum", 1}}},
                     {"end", recorded_end_schema()},
                     {"metrics", run["metrics"]},
                     {"straggler", run["straggler"]}};
  Json required = Json::array();
  for (const auto& [key, value] : properties.items()) required.push_back(key);
  const Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                       {"title", "Result of lockstep analyze of a recording (--json)"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"required", std::move(required)},
                       {"properties", std::move(properties)},
                       {"definitions", results["definitions"]}};
  return schema.dump(2) + "\n";
}

}  // namespace lockstep
