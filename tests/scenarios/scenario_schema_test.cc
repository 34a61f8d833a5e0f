#include "scenarios/scenario_schema.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "scenarios/scenario.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const std::string kShipped = LOCKSTEP_SOURCE_DIR "/scenarios/schema.json";

TEST(ScenarioSchema, StandsInTheTreeAsItIsMade) {
  if (std::getenv("LOCKSTEP_WRITE_DOCS") != nullptr) {
    std::ofstream(kShipped) << scenario_schema_text();
    return;
  }
  std::ostringstream text;
  text << std::ifstream(kShipped).rdbuf();
  EXPECT_TRUE(text.str() == scenario_schema_text())
      << "LOCKSTEP_WRITE_DOCS=1 build/test/bin/test_scenarios --gtest_filter=ScenarioSchema.* "
         "writes scenarios/schema.json anew";
  EXPECT_EQ(Json::parse(text.str()), scenario_schema().document());
}

// A key that the schema takes and no member holds would be read and forgotten.
TEST(ScenarioSchema, EveryKeyIsAMemberOrIsUsedBeforeThere) {
  Scenario scenario;
  scenario.golden = "golden.json";
  scenario.join_divide_by = "active_ranks";
  std::set<std::string> known = {"$schema",          "epochs", "batch_size_per_rank",
                                 "samples_per_rank", "full",   "sweep",
                                 "matrix",           "exclude"};
  const Json written = as_json(scenario);
  for (const auto& [key, value] : written.items()) known.insert(key);
  std::set<std::string> taken;
  for (const auto& [key, node] : scenario_schema().root().keys) taken.insert(key);
  EXPECT_EQ(taken, known);
}

template <class T>
std::set<std::string> keys_of(const T& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

TEST(ScenarioSchema, EveryKeyOfAnExpectationAndAMutantIsAMember) {
  Scenario scenario;
  MutantSpec& mutant = scenario.mutants.emplace_back();
  mutant.rank = mutant.step = mutant.bucket = mutant.element = mutant.bit = mutant.other = 1;
  mutant.tensor = "x";
  Expectation& expect = scenario.expect[0];
  expect.libtorch = "<2.4";
  expect.verdict = Verdict::fail;
  expect.outcome = RunEnding::failed;
  expect.cause = expect.tensor = expect.kind = expect.issue = "x";
  expect.step = expect.bucket = expect.primary_rank = expect.within_ms = 1;
  expect.named_collective = expect.named_bucket = 1;
  expect.named_phase = "forward";
  expect.straggler = ExpectedStraggler{"link", 1};
  expect.lanes = {{Lane::replay, LaneVerdict::pass}};
  expect.checks = {{"x", CheckVerdict::pass}};
  const Json written = as_json(scenario);
  const Json& definitions = scenario_schema().document()["definitions"];
  const Json& expected = definitions["expectation"]["properties"];
  EXPECT_EQ(keys_of(written["mutants"][0]), keys_of(definitions["mutant"]["properties"]));
  EXPECT_EQ(keys_of(written["timeouts"]), keys_of(definitions["timeouts"]["properties"]));
  EXPECT_EQ(keys_of(written["expect"]), keys_of(expected));
  EXPECT_EQ(keys_of(written["expect"]["named"]), keys_of(expected["named"]["properties"]));
  EXPECT_EQ(keys_of(written["expect"]["straggler"]), keys_of(expected["straggler"]["properties"]));
}

// What a scenario that gives nothing gets from the schema is what the structs begin with.
TEST(ScenarioSchema, DefaultsAreThoseOfTheStruct) {
  Json document = Json::object();
  fill_defaults(scenario_schema().root(), &document);
  EXPECT_EQ(document["seed"], 123);
  const Json written = as_json(Scenario{});
  for (const auto& [key, value] : document.items())
    if (key != "seed" && !value.is_object()) {
      EXPECT_EQ(value, written[key]) << key;
    }
}

}  // namespace
}  // namespace lockstep
