#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/parse/suite.h"
#include "scenarios/scenario.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

bool in(const char* range, const char* version) {
  const auto parsed = VersionRange::parse(range);
  EXPECT_TRUE(parsed) << range;
  return parsed && parsed->contains(version);
}

TEST(VersionRange, ComparesNumbersNotText) {
  EXPECT_TRUE(in("<2.4", "1.13.1"));
  EXPECT_TRUE(in("<2.4", "2.3.9"));
  EXPECT_FALSE(in("<2.4", "2.14.1"));
  EXPECT_TRUE(in(">=2.4", "2.14.1"));
  EXPECT_TRUE(in(">=2.4", "2.4.0a0+git1234"));
  EXPECT_FALSE(in(">=2.4", "2.3.1"));
}

TEST(VersionRange, WhatABoundLeavesOutMatchesAny) {
  EXPECT_TRUE(in("1.13", "1.13.1"));
  EXPECT_TRUE(in("=2", "2.14.1"));
  EXPECT_FALSE(in("1.13", "1.1"));
  EXPECT_TRUE(in("<=2.4", "2.4.1"));
  EXPECT_FALSE(in(">2.4", "2.4.1"));
  EXPECT_FALSE(in("1.13.1", "1.13"));
}

TEST(VersionRange, AllBoundsMustHold) {
  EXPECT_TRUE(in(">=2.0 <2.4", "2.3.1"));
  EXPECT_FALSE(in(">=2.0 <2.4", "1.13.1"));
  EXPECT_FALSE(in(">=2.0  <2.4", "2.6.0"));
}

TEST(VersionRange, WordsAreLookedForBehindTheNumbers) {
  EXPECT_TRUE(in(">=2.8 +gloo", "2.15.0+gloo"));
  EXPECT_FALSE(in(">=2.8 +gloo", "2.15.0"));
  EXPECT_FALSE(in("+gloo <2.8", "2.15.0+gloo"));
  EXPECT_TRUE(in("+gloo", "2.7.1+cpu+gloo"));
  EXPECT_FALSE(VersionRange::parse("+"));
}

TEST(VersionRange, AnUnknownVersionIsInNone) {
  EXPECT_FALSE(in("<2.4", ""));
  EXPECT_FALSE(in(">=0", "unknown"));
}

TEST(VersionRange, OtherTextIsNoRange) {
  for (const char* text : {"", " ", "<", "2.", "2.x", "!=2", "< 2.4", "=<2", "-1", "2.4-2.6"})
    EXPECT_FALSE(VersionRange::parse(text)) << text;
}

TEST(Scenario, JsonAndBackIsTheSame) {
  const TemporaryFolder folder;
  const std::vector<std::string> sets = {
      R"(/model={"kind":"mlp","in_features":3,"hidden":[4,5],"out_features":2})",
      R"(/mutants=[{"kind":"flip_bit","rank":1,"step":2,"bucket":0,"tensor":"fc1.bias"},{"kind":"drop_bucket"}])",
      R"(/expect={"verdict":"fail","lanes":{"replay":"fail"},"checks":{"aliasing":"fail"},"cause":"unknown","step":0,"tensor":"x",
                  "bucket":1,"outcome":"failed","primary_rank":2,"kind":"hang","within_ms":5,"issue":"#1"})",
      "/golden=x.json",
      "/timeouts={\"step_ms\":7}",
      "/seed=9007199254740992",
      "/optimizer/lr=1"};
  const auto file = load_scenario_file(folder.write("f.json", kScenario), {sets, {}});
  ASSERT_TRUE(file) << to_text(file.errors()[0]);
  const Scenario& scenario = file.value().combinations[0].scenario;
  const std::string text = as_json(scenario).dump();
  // Nothing that the user wrote is left out.
  const auto given = [&](size_t set) {
    return nlohmann::ordered_json::parse(sets[set].substr(sets[set].find('=') + 1));
  };
  EXPECT_EQ(as_json(scenario)["mutants"], given(1));
  EXPECT_EQ(as_json(scenario)["expect"], given(2));
  const Scenario back = take_scenario(nlohmann::ordered_json::parse(text));
  EXPECT_EQ(as_json(back).dump(), text);
  EXPECT_EQ(back.model, scenario.model);
  EXPECT_EQ(back.optimizer, scenario.optimizer);
  EXPECT_EQ(back.data, scenario.data);
  EXPECT_EQ(back.mutants.at(0).tensor, "fc1.bias");
  EXPECT_EQ(back.mutants.at(1).rank, std::nullopt);
  EXPECT_EQ(back.expect.at(0).lanes, scenario.expect[0].lanes);
  EXPECT_EQ(back.expect[0].checks, scenario.expect[0].checks);
  EXPECT_EQ(back.expect[0].issue, "#1");
  EXPECT_EQ(back.timeouts.step_ms, 7);
  EXPECT_EQ(back.timeouts.run_ms, 0);
  EXPECT_EQ(back.seed, 9007199254740992U);
  EXPECT_EQ(back.golden, scenario.golden);
}

TEST(Scenario, ExpectationsThatDependOnLibTorchGoThere) {
  Scenario scenario;
  scenario.expect.resize(2);
  scenario.expect[0].libtorch = "<2.4";
  scenario.expect[0].verdict = Verdict::fail;
  const Scenario back = take_scenario(as_json(scenario));
  ASSERT_EQ(back.expect.size(), 2U);
  EXPECT_EQ(back.expect[0].libtorch, "<2.4");
  EXPECT_EQ(back.expect[0].verdict, Verdict::fail);
  EXPECT_EQ(back.expect[1].libtorch, "");
}

TEST(Scenario, AnythingElseIsRefused) {
  for (const char* text : {"{\"name\": 3}", "{}", "[]", "3"})
    EXPECT_THROW(take_scenario(nlohmann::ordered_json::parse(text)), nlohmann::json::exception)
        << text;
}

}  // namespace

}  // namespace lockstep
