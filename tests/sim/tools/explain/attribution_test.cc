#include "sim/tools/explain/attribution.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/tools/explain/dump_pickle.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

RankList ranks_of(std::vector<int64_t> ranks) {
  return std::make_shared<std::vector<int64_t>>(std::move(ranks));
}

FlightEntry made_entry(int64_t sequence, bool done, int64_t created_ms, bool gloo = false) {
  FlightEntry made;
  made.record = made.sequence = sequence;
  made.group = "0";
  made.operation = "all_reduce";
  made.sizes = "[[4]]";
  made.dtypes = "[\"Float\"]";
  made.created_ns = created_ms * 1'000'000;
  made.timeout_ms = 1000;
  made.gloo = gloo;
  made.done = done;
  return made;
}

// Three ranks whose clocks are apart, each of which completed collectives 1 to `count`.
std::vector<FlightDump> made_job(bool gloo = false, int64_t count = 3) {
  std::vector<FlightDump> job(3);
  for (int64_t rank = 0; rank < 3; ++rank) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", ranks_of({0, 1, 2})};
    dump.status["0"] = {count, count};
    for (int64_t sequence = 1; sequence <= count; ++sequence)
      dump.entries.push_back(made_entry(sequence, true, 10 * sequence + 5000 * rank, gloo));
  }
  return job;
}

void enter(FlightDump* dump, int64_t sequence, bool done, int64_t created_ms, bool gloo = false) {
  dump->entries.push_back(made_entry(sequence, done, created_ms + 5000 * dump->rank, gloo));
  dump->status["0"].enqueued = sequence;
  if (done) dump->status["0"].completed = sequence;
}

TEST(ExplainAttribution, NobodyIsAccusedWhereNobodyWaits) {
  for (const bool gloo : {false, true}) {
    const FlightFinding found = attribute(made_job(gloo, 12));
    EXPECT_TRUE(found.decided);
    EXPECT_EQ(found.kind, FlightClass::nothing);
    EXPECT_TRUE(found.guilty.empty() && found.victims.empty() && found.candidates.empty());
  }
}

TEST(ExplainAttribution, WhoNeverEnteredIsGuiltyAndWhoWaitsIsNot) {
  auto job = made_job();
  enter(&job[0], 4, false, 40);
  enter(&job[2], 4, false, 40);
  const FlightFinding found = attribute(job);
  EXPECT_TRUE(found.decided);
  EXPECT_EQ(found.kind, FlightClass::never_entered);
  EXPECT_EQ(found.guilty, RankSet{1});
  EXPECT_EQ(found.victims, (RankSet{0, 2}));
  EXPECT_EQ(found.sequence, 4);
}

TEST(ExplainAttribution, ADumpOfAnotherMomentAccusesNobody) {
  auto job = made_job(false, 12);
  job[1].entries.resize(5);  // asked for earlier, or left by a run that is over
  job[1].status["0"] = {5, 5};
  enter(&job[0], 13, false, 130);
  enter(&job[2], 13, false, 130);
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
  EXPECT_EQ(found.candidates, RankSet{1});
  ASSERT_EQ(found.missing.size(), 1U);
  EXPECT_NE(found.missing[0].find("whether the dump of rank 1 is from the same moment"),
            std::string::npos);
  for (FlightDump& dump : job)  // a broadcast's root goes ahead
    for (FlightEntry& entry : dump.entries) entry.operation = "broadcast";
  EXPECT_EQ(attribute(job).guilty, RankSet{1});
}

TEST(ExplainAttribution, CountsWithoutCallsNameNobodyAndAreNotNothing) {
  auto job = made_job();
  for (FlightDump& dump : job) dump.entries.clear();
  EXPECT_TRUE(attribute(job).decided);
  job[0].status["0"].enqueued = job[2].status["0"].enqueued = 4;
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, RankSet{1});
}

TEST(ExplainAttribution, WhereOthersWaitForTheLongestIsWhereItStands) {
  auto job = made_job();
  for (const size_t rank : {0U, 1U}) job[rank].groups["1"] = {"tp", ranks_of({0, 1})};
  FlightEntry first = made_entry(1, false, 40);
  first.group = "1";
  first.record = 100;
  job[0].entries.push_back(first);
  job[0].status["1"] = {1, 0};
  job[1].status["1"] = {0, 0};
  enter(&job[2], 4, false, 140);  // by name this group comes first
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.guilty, RankSet{1});
  EXPECT_EQ(found.group, "1");
}

TEST(ExplainAttribution, AChainOverTwoGroupsIsFollowedToItsRoot) {
  auto job = made_job();
  enter(&job[0], 4, false, 40);
  for (const size_t rank : {1, 2}) job[rank].groups["1"] = {"pair", ranks_of({1, 2})};
  job[1].entries.push_back(made_entry(1, false, 40));
  job[1].entries.back().group = "1";
  job[1].status["1"] = {1, 0};
  job[2].status["1"] = {0, 0};
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_EQ(found.victims, (RankSet{0, 1}));
}

// It may do nothing else than wait there: for a broken link, or for the order of two groups.
TEST(ExplainAttribution, WhoWaitsInWhatAllEnteredIsNotNamedForWhatItMissed) {
  auto job = made_job();
  enter(&job[2], 4, false, 40);
  enter(&job[0], 4, false, 50);
  for (const size_t rank : {0, 1}) {
    job[rank].groups["1"] = {"tensor", ranks_of({0, 1})};
    job[rank].entries.push_back(made_entry(1, false, 45));
    job[rank].entries.back().group = "1";
    job[rank].status["1"] = {1, 0};
  }
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, (RankSet{0, 1}));
  EXPECT_EQ(found.victims, RankSet{2});
}

TEST(ExplainAttribution, WhoHoldsWhatPeersCompletedIsGuilty) {
  auto job = made_job();
  enter(&job[0], 4, true, 40);
  enter(&job[1], 4, false, 40);
  enter(&job[2], 4, true, 40);
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::held);
  EXPECT_EQ(found.guilty, RankSet{1});
}

TEST(ExplainAttribution, ALateRankIsFoundThoughClocksAreApart) {
  auto job = made_job(true, 12);
  for (FlightDump& dump : job) enter(&dump, 13, true, dump.rank == 1 ? 2590 : 130, true);
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::late);
  EXPECT_EQ(found.guilty, RankSet{1});
  EXPECT_NEAR(found.lateness_ms.value(), 2460, 1);
}

TEST(ExplainAttribution, WhoIsLateAndInTimeAfterAllIsNotAccused) {
  auto job = made_job(true, 12);
  for (int64_t sequence : {13, 14})
    for (FlightDump& dump : job)
      enter(&dump, sequence, true, sequence * 3000 + (dump.rank == 1 && sequence == 13 ? 2500 : 0),
            true);
  EXPECT_TRUE(attribute(job).decided);
  EXPECT_TRUE(attribute(job).guilty.empty());
}

TEST(ExplainAttribution, ClocksAreNotAlignedByACollectiveThatARankWasLateFor) {
  auto job = made_job(true);
  for (FlightDump& dump : job) {
    dump.entries.resize(1);
    dump.entries[0].created_ns += dump.rank == 1 ? 5'000'000'000 : 0;
    enter(&dump, 2, true, 6000, true);
  }
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
}

TEST(ExplainAttribution, OfAMismatchTheFewAreGuiltyAndOfTwoNobody) {
  auto job = made_job();
  for (FlightDump& dump : job) enter(&dump, 4, false, 40);
  job[2].entries.back().sizes = "[[5]]";
  EXPECT_EQ(attribute(job).guilty, RankSet{2});
  EXPECT_EQ(attribute(job).kind, FlightClass::mismatch);
  EXPECT_EQ(attribute(job).difference, Difference::size);
  EXPECT_EQ(attribute(job).timeout_ms, 1000);
  EXPECT_EQ(attribute(job).ranks, 3);
  auto dtypes = job, operations = job;
  dtypes[2].entries.back().sizes = "[[4]]";
  dtypes[2].entries.back().dtypes = "[\"Double\"]";
  EXPECT_EQ(attribute(dtypes).difference, Difference::dtype);
  operations[2].entries.back().operation = "broadcast";
  EXPECT_EQ(attribute(operations).difference, Difference::operation);
  job.erase(job.begin());
  EXPECT_FALSE(attribute(job).decided);
  EXPECT_TRUE(attribute(job).guilty.empty());
  EXPECT_EQ(attribute(job).candidates, (RankSet{1, 2}));
}

// Found by a fuzzer: it was guilty, and a victim.
TEST(ExplainAttribution, WhoseDumpHoldsTwoCallsOfOneNumberIsNotNamed) {
  auto job = made_job();
  FlightEntry other = made_entry(2, true, 5020);
  other.sizes = "[[7]]";
  job[1].entries.push_back(other);
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::mismatch);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
  EXPECT_EQ(found.candidates, RankSet{1});
  EXPECT_EQ(found.victims, (RankSet{0, 2}));
}

TEST(ExplainAttribution, WithoutAnAbsentRanksDumpNobodyIsNamed) {
  auto job = made_job();
  enter(&job[0], 4, false, 40);
  job.pop_back();
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
  EXPECT_TRUE(found.candidates.contains(2));
}

TEST(ExplainAttribution, AJobOfWhichADumpIsAbsentIsNotSaidToBeWell) {
  auto job = made_job();
  job.pop_back();
  EXPECT_FALSE(attribute(job).decided);
  EXPECT_EQ(attribute(job).candidates, RankSet{2});
}

TEST(ExplainAttribution, AMajorityIsOfTheGroupNotOfTheDumpsThatAreThere) {
  std::vector<FlightDump> job = made_job();
  for (FlightDump& dump : job) {
    dump.groups["0"].ranks = ranks_of({0, 1, 2, 3, 4, 5});
    enter(&dump, 4, false, 40);
  }
  job[2].entries.back().operation = "broadcast";
  EXPECT_FALSE(attribute(job).decided);
  EXPECT_EQ(attribute(job).candidates, (RankSet{0, 1, 2}));
}

TEST(ExplainAttribution, NobodyIsNamedWhereDumpsDisagreeOnAGroupsRanks) {
  auto job = made_job();
  enter(&job[0], 4, false, 40);
  enter(&job[2], 4, false, 40);
  job[2].groups["0"].ranks = ranks_of({0, 2});
  EXPECT_FALSE(attribute(job).decided);
  EXPECT_TRUE(attribute(job).guilty.empty());
}

TEST(ExplainAttribution, OfAGroupOfGloosThatOneRankKnowsNothingIsConcluded) {
  auto job = made_job(true);
  for (FlightDump& dump : job) dump.groups["0"].ranks = nullptr;
  job[1].groups["1"] = {"undefined", nullptr};
  job[1].entries.push_back(made_entry(1, true, 40, true));
  job[1].entries.back().group = "1";
  EXPECT_FALSE(attribute(job).decided);
}

FlightEntry of_group(const char* group, FlightEntry entry) {
  entry.group = group;
  return entry;
}

// As where rank 3 of four was killed, and only rank 2 was in a group with it.
TEST(ExplainAttribution, WhoseLastCallNobodyElseTellsOfIsNotNamed) {
  auto job = made_job(true, 12);
  for (FlightDump& dump : job) dump.groups["0"].ranks = nullptr;
  enter(&job[0], 13, false, 140, true);
  enter(&job[1], 13, false, 140, true);
  EXPECT_EQ(attribute(job).guilty, RankSet{2});
  job[2].entries.push_back(of_group("1", made_entry(1, false, 10'135, true)));
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
  EXPECT_FALSE(found.candidates.contains(2));
  EXPECT_TRUE(found.victims.contains(2));
}

TEST(ExplainAttribution, ClocksOfAGroupThatIsNewAreAlignedByOthers) {
  auto job = made_job(true, 12);
  job[1].entries.push_back(of_group("1", made_entry(1, false, 5140, true)));
  job[2].entries.push_back(of_group("1", made_entry(1, false, 10'150, true)));
  EXPECT_EQ(attribute(job).kind, FlightClass::nothing);
  job[1].entries.push_back(of_group("1", made_entry(2, false, 5160, true)));
  job[2].entries.push_back(of_group("1", made_entry(2, false, 12'170, true)));
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::late);
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_NEAR(found.lateness_ms.value_or(0), 2010, 1);
}

TEST(ExplainPickle, ReadsPlainValuesAndExecutesNothing) {
  const std::string_view plain(
      "\x80\x02}q\x01X\x01\x00\x00\x00"
      "aq\x02K\x07s.",
      17);
  const auto read = read_plain_pickle(plain, "x");
  ASSERT_TRUE(read);
  EXPECT_EQ(read.value().dump(), "{\"a\":7}");
  const auto code = read_plain_pickle(
      "\x80\x02"
      "cos\nsystem\nX\x01\x00",
      "x");
  ASSERT_FALSE(code);
  EXPECT_NE(code.errors()[0].message.find("byte 2: operation 0x63"), std::string::npos);
  EXPECT_FALSE(read_plain_pickle(plain.substr(0, 15), "x"));
}

// Python remembers a list before it is filled: [[8], [8]], both the same one.
TEST(ExplainPickle, AListInTwoPlacesIsReadTwice) {
  const auto beside = read_plain_pickle(
      "\x80\x02]q\x01(]q\x02K\x08\x61h\x02"
      "e.",
      "x");
  ASSERT_TRUE(beside) << to_text(beside.errors()[0]);
  EXPECT_EQ(beside.value().dump(), "[[8],[8]]");
  const auto later = read_plain_pickle(
      "\x80\x02]q\x01(]q\x02K\x08\x61]q\x03h\x02\x61"
      "e.",
      "x");
  ASSERT_TRUE(later);
  EXPECT_EQ(later.value().dump(), "[[8],[[8]]]");
  // One that is in itself ends all the same.
  const auto itself = read_plain_pickle(
      "\x80\x02]q\x01h\x01"
      "a.",
      "x");
  ASSERT_TRUE(itself);
  EXPECT_EQ(itself.value().dump(), "[[]]");
}

TEST(ExplainDump, JsonIsRead) {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "_dump_7.json",
      R"({"version": "2.10", "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}},
          "pg_status": {"0": {"last_enqueued_collective": "4", "last_completed_collective": "3"}},
          "entries": [{"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"],
                       "collective_seq_id": 4, "profiling_name": "gloo:all_reduce",
                       "time_created_ns": 5, "state": "scheduled", "retired": true}]})");
  RankLists lists;
  const auto dump = read_flight_dump(file, &lists);
  ASSERT_TRUE(dump) << to_text(dump.errors()[0]);
  EXPECT_EQ(dump.value().rank, 7);
  EXPECT_EQ(dump.value().ranks_at_least, 2);
  EXPECT_EQ(dump.value().status.at("0").enqueued, 4);
  EXPECT_TRUE(dump.value().entries[0].gloo && dump.value().entries[0].done);
}

TEST(ExplainPickle, NestingIsBounded) {
  std::string deep("\x80\x02", 2);
  deep += std::string(200, ']') + std::string(199, 'a') + ".";
  EXPECT_FALSE(read_plain_pickle(deep, "x"));
}

}  // namespace
}  // namespace lockstep
