#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>

#include "sim/tools/campaign/cases.h"
#include "sim/tools/campaign/tally.h"
#include "tests/sim/tools/campaign/documents.h"

namespace lockstep {
namespace {

TEST(Campaign, EveryDrawnCaseIsAScenarioAndTheSameForItsSeed) {
  std::map<std::string, int> kinds;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const auto document = drawn_case(seed);
    EXPECT_EQ(errors_of(document), "") << seed;
    EXPECT_EQ(drawn_case(seed), document);
    ++kinds[document["faults"][0]["kind"].get<std::string>()];
  }
  EXPECT_GT(kinds.size(), 25u);
  EXPECT_NE(drawn_case(1), drawn_case(2));
}

TEST(Campaign, EveryStragglerIsAScenarioWithItsClass) {
  std::set<std::string> classes;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const auto document = straggler_case(seed);
    EXPECT_EQ(errors_of(document), "") << seed;
    const auto& straggler = document["expect"]["straggler"];
    classes.insert(straggler["class"].get<std::string>());
    EXPECT_EQ(document["faults"].empty(), straggler["class"] == "none");
  }
  EXPECT_EQ(classes.size(), 6u);
}

TEST(Campaign, TheEnumerationHasEveryKindRankAndPlaceOnce) {
  const auto cases = enumerated_cases();
  EXPECT_EQ(cases.size(), 10u * 9u * 5u);
  std::set<std::string> names;
  for (const auto& document : cases) names.insert(document["name"].get<std::string>());
  EXPECT_EQ(names.size(), cases.size());
  EXPECT_TRUE(names.contains("kill-2-of-3-mid_bucket"));
  for (size_t i = 0; i < cases.size(); i += 7) EXPECT_EQ(errors_of(cases[i]), "");
}

TEST(Campaign, SomeOfTheEnumerationAreDrawnByTheSeed) {
  const auto some = some_enumerated_cases(3, 20);
  EXPECT_EQ(some.size(), 20u);
  EXPECT_EQ(some_enumerated_cases(3, 20), some);
  EXPECT_NE(some_enumerated_cases(4, 20), some);
  EXPECT_EQ(some_enumerated_cases(3, 100'000).size(), enumerated_cases().size());
}

TEST(Campaign, TalliesByKind) {
  RunResult good, bad;
  good.name = "a";
  good.met = true;
  good.failure.emplace().after_ms = 12;
  bad.name = "b";
  bad.met = false;
  const auto tallies = tally({good, bad}, {{"a", "kill"}, {"b", "kill"}});
  ASSERT_EQ(tallies.size(), 1u);
  EXPECT_EQ(tallies[0].runs, 2);
  EXPECT_EQ(tallies[0].met, 1);
  EXPECT_EQ(tallies[0].failed_runs, 1);
  EXPECT_EQ(tallies[0].after_ms, std::vector<double>{12});
}

TEST(Campaign, PercentilesAreNearestRanks) {
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(percentile(values, 50), 5);
  EXPECT_EQ(percentile(values, 95), 10);
  EXPECT_EQ(percentile(values, 90), 9);
  EXPECT_EQ(percentile({4}, 99), 4);
}

}  // namespace

}  // namespace lockstep
