#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/report/document.h"
#include "sim/report/explore_document.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json scenario_json(const ExploredScenario& one) {
  Json result = as_json(one.result);
  result.erase("libraries");
  return {
      {"name", one.name},       {"label", one.label},      {"file", one.file},
      {"reducer", one.reducer}, {"again", one.again},      {"expects_finding", one.expects_finding},
      {"verdict", one.verdict}, {"met", or_null(one.met)}, {"result", std::move(result)}};
}

}  // namespace

Json as_json(const ExploreDocument& document) {
  Json scenarios = Json::array();
  for (const ExploredScenario& one : document.scenarios) scenarios.push_back(scenario_json(one));
  return {{"schema_version", 1},
          {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()},
          {"machine", as_json(document.machine)},
          {"libraries", as_json(document.libraries)},
          {"verdict", document.verdict},
          {"exit_code", document.exit_code},
          {"duration_ms", document.duration_ms},
          {"spec", as_json(document.spec)},
          {"scenarios", std::move(scenarios)}};
}

}  // namespace lockstep
