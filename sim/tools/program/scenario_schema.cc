#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/scenario_schema.h"
#include "sim/tools/program/causes.h"
#include "sim/tools/program/scenario.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Of an expectation: what a program can show.
constexpr const char* kExpected[] = {"when", "verdict", "outcome",  "cause",
                                     "step", "tensor",  "lanes",    "primary_rank",
                                     "kind", "named",   "straggler"};

Json causes_json() {
  Json words = Json::array();
  for (int i = static_cast<int>(ProgramCause::unknown); i <= static_cast<int>(kLastProgramCause);
       ++i)
    words.push_back(row_of(static_cast<ProgramCause>(i)).name);
  words.push_back("collective_mismatch");
  return words;
}

Json expectation_json(const Json& definition) {
  Json json = {{"description", definition["description"]}, {"type", "object"}};
  Json& keys = json["properties"];
  for (const char* key : kExpected) keys[key] = definition["properties"][key];
  keys["when"]["description"] =
      "JSON pointers and the values they must have for this entry to count.";
  keys["cause"] = {{"description", "Class of what is wrong: docs/programs.md."},
                   {"type", "string"},
                   {"enum", causes_json()}};
  keys["step"]["description"] =
      "The first step that is wrong, or in which the primary rank failed (0: before the first).";
  keys["tensor"]["description"] = "What is wrong there: \"gradient of fc.weight\".";
  keys["named"]["properties"]["collective"]["description"] =
      "Its number, over the collectives of all ranks, from 1.";
  Json lanes = Json::object();
  for (const char* lane : {"replica", "replay", "float64"})
    lanes[lane] = keys["lanes"]["properties"][lane];
  keys["lanes"]["properties"] = lanes;
  json["additionalProperties"] = false;
  return json;
}

Json program_json() {
  Json json = {{"description", "The training: what `lockstep verify -- COMMAND` is given."},
               {"type", "object"},
               {"required", {"command"}}};
  json["properties"]["command"] = {
      {"description", "What starts it, and its arguments, as behind `--`."},
      {"type", "array"},
      {"minItems", 1},
      {"items", {{"type", "string"}}}};
  const ProgramPart part;
  program_members(part, MemberSchema{json["properties"]});
  json["additionalProperties"] = false;
  return json;
}

Json faults_json() {
  return {
      {"description",
       "What goes wrong on purpose, as of run --fault: {\"kind\": \"kill\", \"rank\": 1, "
       "\"step\": 3}, or the same as \"kill rank=1 step=3\". With this key, though the list is "
       "empty, the program is run as `lockstep run -- COMMAND` runs it; without it judged as by "
       "`lockstep verify -- COMMAND`."},
      {"type", "array"},
      {"maxItems", 64},
      {"items", {{"type", {"object", "string"}}}}};
}

Json sweep_json() {
  Json json = {{"description",
                "What `lockstep sweep` measures where its command line says nothing "
                "else. Other verbs do not look at it."},
               {"type", "object"},
               {"minProperties", 1}};
  const ProgramSweepPart part;
  program_sweep_members(part, MemberSchema{json["properties"]});
  json["additionalProperties"] = false;
  return json;
}

Json schema_json() {
  const Json& of = scenario_schema().document();
  const Json& keys = of["properties"];
  Json json = {
      {"$schema", of["$schema"]},
      {"title", "lockstep scenario of a program"},
      {"description",
       "A training script of your own as a scenario: docs/programs.md. JSON with comments."},
      {"type", "object"}};
  Json& own = json["properties"];
  for (const char* key : {"$schema", "name", "what"}) own[key] = keys[key];
  own[kProgramKey] = program_json();
  const ProgramScenario scenario;
  program_scenario_members(scenario, MemberSchema{own});
  own["faults"] = faults_json();
  for (const char* key : {"expect", "full"}) own[key] = keys[key];
  own["sweep"] = sweep_json();
  for (const char* key : {"matrix", "exclude"}) own[key] = keys[key];
  json["additionalProperties"] = false;
  json["required"] = {"name", kProgramKey};
  const Json& definitions = of["definitions"];
  json["definitions"] = {{"expectation", expectation_json(definitions["expectation"])},
                         {"lane_verdict", definitions["lane_verdict"]}};
  return json;
}

}  // namespace

const Schema& program_scenario_schema() {
  static const Schema schema(schema_json());
  return schema;
}

std::string program_scenario_schema_text() {
  return schema_text(program_scenario_schema().document());
}

}  // namespace lockstep
