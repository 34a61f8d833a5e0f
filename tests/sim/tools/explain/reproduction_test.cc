#include "sim/tools/explain/reproduction.h"

#include <gtest/gtest.h>

#include "scenarios/faults.h"
#include "scenarios/parse/suite.h"
#include "sim/report/document.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

FlightFinding found_in(FlightClass kind, int64_t ranks, RankSet guilty) {
  FlightFinding found;
  found.kind = kind;
  found.ranks = ranks;
  found.guilty = std::move(guilty);
  found.operation = "all_reduce";
  found.sequence = 42;
  found.timeout_ms = 600'000;
  return found;
}

// The runs of the file that would be written, as `lockstep run FILE` and `--full` read it.
std::vector<Scenario> loaded(const Reproduction& made, bool full = false) {
  if (!made.scenario) return {};
  const TemporaryFolder folder;
  SuiteOptions options;
  options.full = full;
  const auto file =
      load_scenario_file(folder.write("again.json", to_text(*made.scenario)), options);
  EXPECT_TRUE(file) << (file ? "" : file.errors().front().message) << "\n"
                    << to_text(*made.scenario);
  std::vector<Scenario> runs;
  if (file)
    for (const Combination& one : file.value().combinations) runs.push_back(one.scenario);
  return runs;
}

void expect_accused(const Scenario& run, FaultKind kind, int64_t rank, const char* failure) {
  ASSERT_EQ(run.faults.size(), 1);
  EXPECT_EQ(run.faults.front().kind, kind);
  EXPECT_EQ(rank_of(run.faults.front()), rank);
  ASSERT_FALSE(run.expect.empty());
  EXPECT_EQ(run.expect.front().primary_rank, rank);
  EXPECT_EQ(run.expect.front().kind, failure);
}

struct Case {
  FlightClass kind;
  FaultKind fault;
  const char* failure;
  void (*change)(FlightFinding*) = [](FlightFinding*) {};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {FlightClass::never_entered, FaultKind::deadlock, "hang"},
      {FlightClass::held, FaultKind::deadlock, "hang"},
      {FlightClass::late, FaultKind::stall, "hang", [](auto* found) { found->lateness_ms = 7e5; }},
      {FlightClass::mismatch, FaultKind::mismatched_dtype, "rejected",
       [](auto* found) { found->difference = Difference::dtype; }},
      {FlightClass::mismatch, FaultKind::mismatched_bucket_order, "rejected",
       [](auto* found) { found->difference = Difference::size; }},
      {FlightClass::died, FaultKind::exception, "exception"},
      {FlightClass::died, FaultKind::segfault, "crash", [](auto* found) { found->signal = 11; }},
      {FlightClass::died, FaultKind::kill, "crash", [](auto* found) { found->signal = 7; }},
      {FlightClass::silent, FaultKind::kill, "crash",
       [](auto* found) { found->lost_connection = true; }},
      {FlightClass::silent, FaultKind::deadlock, "hang"}};
  return all;
}

TEST(ExplainReproduction, EachClassIsAScenarioThatAccusesTheRank) {
  for (const Case& one : cases())
    for (const int64_t ranks : {3, 16, 17, 256, 257, 10'000}) {
      FlightFinding found = found_in(one.kind, ranks, {2});
      one.change(&found);
      const Reproduction made = reproduce(found);
      for (const bool full : {false, true}) {
        const auto runs = loaded(made, full);
        ASSERT_EQ(runs.size(), 1);
        expect_accused(runs.front(), one.fault, 2, one.failure);
        const int64_t size = ranks <= 16 || (full && ranks <= 256) ? ranks : 8;
        EXPECT_EQ(runs.front().world_size, size);
        EXPECT_LE(runs.front().what.size(), 400);
      }
    }
}

TEST(ExplainReproduction, EachGuiltyRankHasARunOfItsOwn) {
  const FlightFinding found = found_in(FlightClass::held, 64, {12, 60});
  const Reproduction made = reproduce(found);
  const auto small = loaded(made), whole = loaded(made, true);
  ASSERT_EQ(small.size(), 2);
  ASSERT_EQ(whole.size(), 2);
  expect_accused(small[0], FaultKind::deadlock, 1, "hang");
  expect_accused(small[1], FaultKind::deadlock, 2, "hang");
  expect_accused(whole[0], FaultKind::deadlock, 12, "hang");
  expect_accused(whole[1], FaultKind::deadlock, 60, "hang");
  EXPECT_NE(small[0].what.find("8 ranks stand for the job's 64 (ranks 1, 2 for ranks 12, 60)"),
            std::string::npos)
      << small[0].what;
}

TEST(ExplainReproduction, TimesAreSecondsHereAndTheJobsOwnInFull) {
  FlightFinding found = found_in(FlightClass::late, 4, {1});
  found.lateness_ms = 605'000;
  const Reproduction made = reproduce(found);
  const auto runs = loaded(made), full = loaded(made, true);
  ASSERT_TRUE(runs.size() == 1 && full.size() == 1);
  EXPECT_NEAR(600'000 * runs.front().time_scale, 2000, 1e-6);
  EXPECT_EQ(runs.front().faults.front().options.integer("duration_ms"), 1'200'000);
  EXPECT_EQ(full.front().time_scale, 1);
  EXPECT_EQ(full.front().faults.front().options.integer("duration_ms"), 605'000);
}

TEST(ExplainReproduction, AShortTimeOutIsLongerHere) {
  FlightFinding found = found_in(FlightClass::never_entered, 4, {1});
  found.timeout_ms = 500;
  const auto runs = loaded(reproduce(found)), full = loaded(reproduce(found), true);
  ASSERT_TRUE(runs.size() == 1 && full.size() == 1);
  EXPECT_EQ(runs.front().timeouts.collective_ms, 2000);
  EXPECT_EQ(full.front().timeouts.collective_ms, 500);
}

TEST(ExplainReproduction, NothingIsWrittenOfWhatIsUndecidedOrHasNoFault) {
  FlightFinding undecided = found_in(FlightClass::held, 4, {});
  undecided.decided = false;
  FlightFinding operation = found_in(FlightClass::mismatch, 4, {1});
  operation.difference = Difference::operation;
  for (const auto& found :
       {FlightFinding(), undecided, operation, found_in(FlightClass::straggler, 4, {1})}) {
    const Reproduction made = reproduce(found);
    EXPECT_FALSE(made.scenario);
    EXPECT_FALSE(made.why_not.empty());
    EXPECT_NE(reproduction_text(made, "x").find("no scenario was written: "), std::string::npos);
  }
}

TEST(ExplainReproduction, AForeignNameOfAnOperationIsCutShortAndHarmless) {
  FlightFinding found = found_in(FlightClass::held, 100'000, {1, 2, 3, 4, 5, 6, 7, 8, 99'999});
  found.operation = std::string(5000, 'x') + "\x1b\n\xff";
  const auto runs = loaded(reproduce(found));
  ASSERT_EQ(runs.size(), 7);
  EXPECT_LE(runs.front().what.size(), 400);
}

TEST(ExplainReproduction, CommandsTakeAnyPath) {
  const Reproduction made = reproduce(found_in(FlightClass::held, 1000, {1}));
  const std::string text = reproduction_text(made, "a b.json");
  EXPECT_NE(text.find("lockstep run 'a b.json'\n"), std::string::npos) << text;
  EXPECT_NE(text.find("lockstep simulate 'a b.json' --full --world-size 1000 "), std::string::npos)
      << text;
}

}  // namespace
}  // namespace lockstep
