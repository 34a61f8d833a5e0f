#include "sim/tools/soak/works.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>

#include "scenarios/parse/suite.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

SoakCounts counts_of(SoakWork work, const char* text) {
  return row_of(work).counts(Json::parse(text));
}

TEST(SoakWorks, HaveARowEach) {
  std::set<std::string> words;
  for (const SoakWorkRow& row : soak_works()) {
    words.insert(row.word);
    EXPECT_EQ(soak_work_of(row.word), &row);
    EXPECT_EQ(&row_of(row.work), &row);
    EXPECT_GT(row.seeds, 0);
  }
  EXPECT_EQ(words.size(), soak_works().size());
  EXPECT_EQ(soak_work_of("naps"), nullptr);
}

TEST(SoakWorks, ADefectThatIsMissedOrFoundElsewhereIsAFailure) {
  const SoakCounts counts = counts_of(SoakWork::mutants, R"({
      "kinds": [{"runs": 120}, {"runs": 80}],
      "not_caught": [{"name": "m-1", "end": "equivalent", "again": "one"},
                     {"name": "m-2", "end": "missed", "again": "two"},
                     {"name": "m-3", "end": "elsewhere", "again": "three"}]})");
  EXPECT_EQ(counts.runs, 200);
  ASSERT_EQ(counts.failures.size(), 2u);
  EXPECT_EQ(counts.failures[0].name, "m-2");
  EXPECT_EQ(counts.failures[1].again, "three");
}

TEST(SoakWorks, AnAccusedCorrectRunIsAFailureAndAnUndecidedOneIsNone) {
  const SoakCounts counts = counts_of(SoakWork::clean, R"({"runs": 200,
      "not_passed": [{"name": "c-1", "verdict": "fail", "again": "one"},
                     {"name": "c-2", "verdict": "inconclusive", "again": "two"}]})");
  EXPECT_EQ(counts.runs, 200);
  EXPECT_EQ(counts.undecided, 1);
  ASSERT_EQ(counts.failures.size(), 1u);
  EXPECT_EQ(counts.failures[0].name, "c-1");
}

TEST(SoakWorks, ARunThatWasNotAsExpectedIsAFailure) {
  const SoakCounts counts = counts_of(SoakWork::faults, R"({"runs": [
      {"name": "a", "met": true, "again": ""}, {"name": "b", "met": false, "again": "b again"},
      {"name": "c", "met": null, "again": ""}]})");
  EXPECT_EQ(counts.runs, 3);
  EXPECT_EQ(counts.undecided, 1);
  ASSERT_EQ(counts.failures.size(), 1u);
  EXPECT_EQ(counts.failures[0].again, "b again");
}

TEST(SoakWorks, AFindingAmongSchedulesSaysHowToReplayIt) {
  const SoakCounts counts = counts_of(SoakWork::explore, R"({"scenarios": [
      {"name": "explored-7", "met": false,
       "result": {"explored": 90, "findings": [{"kind": "deadlock", "seed": 11}]}},
      {"name": "explored-8", "met": true, "result": {"explored": 2000, "findings": []}}]})");
  EXPECT_EQ(counts.runs, 2090);
  ASSERT_EQ(counts.failures.size(), 1u);
  EXPECT_EQ(counts.failures[0].again, "lockstep explore failures/explored-7.json --replay 11");
}

TEST(SoakWorks, AResultOfSomethingElseIsRefused) {
  for (const SoakWorkRow& row : soak_works()) {
    EXPECT_THROW(row.counts(Json::object()), Json::exception) << row.word;
    EXPECT_THROW(row.counts(Json::parse(R"({"runs": "many", "kinds": 3, "scenarios": [1]})")),
                 Json::exception)
        << row.word;
  }
}

TEST(SoakWorks, ExploredTrainingsAreScenariosOfEveryReducer) {
  std::set<std::string> kinds;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Json document = explored_case(seed);
    EXPECT_EQ(document, explored_case(seed));
    kinds.insert(document["reducer"]["kind"].get<std::string>());
    const std::string path = testing::TempDir() + "explored.json";
    std::ofstream(path) << document;
    const auto loaded = load_scenario_file(path, {});
    ASSERT_TRUE(loaded) << to_text(loaded.errors().front()) << document;
  }
  EXPECT_EQ(kinds.size(), 3u);
}

}  // namespace
}  // namespace lockstep
