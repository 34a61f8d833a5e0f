#include "sim/tools/explain/late_arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A job whose ranks all compute for `step_ms`, then call their buckets; who is late is so in the
// forward pass, or between two buckets.
struct MadeJob {
  int64_t world_size = 3, steps = 10, buckets = 4, late = -1, before_bucket = 0;
  double step_ms = 80, late_ms = 0, jitter_ms = 1;
  bool alike = false;         // buckets of one size
  bool startup = true;        // the recorder holds what came before the steps
  double clock_ahead_ms = 0;  // of the last rank
  bool gloo = true;           // or calls are queued, as NCCL's are
  uint64_t seed = 1;

  std::vector<FlightDump> dumps() const {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> noise(1 / std::max(jitter_ms, 1e-9));
    std::vector<FlightDump> made(static_cast<size_t>(world_size));
    for (int64_t rank = 0; rank < world_size; ++rank) made[static_cast<size_t>(rank)].rank = rank;
    double now = 1e6;
    for (int64_t call = 0; call < (startup ? 5 : 0); ++call) {
      double last = 0;
      for (FlightDump& dump : made)
        last = std::max(last, add(&dump, now + noise(random), 9 + call));
      now = last + 0.3;
    }
    for (int64_t step = 0; step < steps; ++step) {
      double last = 0;
      for (FlightDump& dump : made) {
        double at = now + step_ms * 0.6 + noise(random);
        for (int64_t bucket = 0; bucket < buckets; ++bucket) {
          at += step_ms * 0.4 / static_cast<double>(buckets) + noise(random) * 0.1;
          if (dump.rank == late && bucket == before_bucket) at += late_ms;
          last = std::max(last, add(&dump, at, alike ? 100 : 100 + bucket));
        }
      }
      now = last + 0.3;
    }
    return made;
  }

  FlightFinding finding() const {
    FlightFinding found;
    find_late_arrivals(dumps(), &found);
    return found;
  }

 private:
  double add(FlightDump* dump, double at_ms, int64_t size) const {
    FlightEntry entry;
    entry.group = "0";
    entry.operation = "all_reduce";
    entry.sizes = "[[" + std::to_string(size) + "]]";
    entry.sequence = static_cast<int64_t>(dump->entries.size()) + 1;
    entry.record = entry.sequence - 1;
    entry.gloo = gloo;
    const double ahead = dump->rank == world_size - 1 ? clock_ahead_ms : 0;
    entry.created_ns = static_cast<int64_t>((at_ms + ahead) * 1e6);
    dump->entries.push_back(entry);
    return at_ms;
  }
};

// Who waits for its GPU in each step calls the next one after the others, which have queued theirs.
TEST(LateArrivals, WhereCallsAreQueuedWhoBeginsAStepLateKeepsNobodyWaiting) {
  MadeJob job{.late = 1, .before_bucket = 0, .late_ms = 20, .gloo = false};
  FlightFinding found = job.finding();
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, RankSet{1});
  EXPECT_TRUE(found.guilty.empty());
  job.before_bucket = 2;
  EXPECT_EQ(job.finding().guilty, RankSet{1});
  job = {.late = 1, .before_bucket = 0, .late_ms = 20};
  EXPECT_EQ(job.finding().guilty, RankSet{1});
}

TEST(LateArrivals, WhoIsLateInEachStepIsNamedWithWhatItCosts) {
  const FlightFinding found = MadeJob{.late = 1, .before_bucket = 2, .late_ms = 20}.finding();
  EXPECT_EQ(found.kind, FlightClass::straggler);
  EXPECT_TRUE(found.decided);
  EXPECT_THAT(found.guilty, ElementsAre(1));
  EXPECT_THAT(found.victims, ElementsAre(0, 2));
  EXPECT_NEAR(found.lateness_ms.value_or(0), 20, 2);
  EXPECT_NEAR(found.slowdown.value_or(0), 100.0 / 80, 0.03);
  EXPECT_THAT(found.evidence.back(), HasSubstr("in 10 steps of 4 collectives and 10"));
}

TEST(LateArrivals, BucketsOfOneSizeAreToldFromStepsByTheirTimes) {
  const FlightFinding found =
      MadeJob{.buckets = 6, .late = 2, .before_bucket = 3, .late_ms = 20, .alike = true}.finding();
  EXPECT_THAT(found.guilty, ElementsAre(2));
  EXPECT_NEAR(found.slowdown.value_or(0), 100.0 / 80, 0.05);
}

TEST(LateArrivals, WhoIsLateFromTheBeginOfAStepHasAClockThatTheStartVouchesFor) {
  MadeJob job{.late = 2, .late_ms = 20};
  EXPECT_THAT(job.finding().guilty, ElementsAre(2));
  job.startup = false;
  const FlightFinding unsure = job.finding();
  EXPECT_FALSE(unsure.decided);
  EXPECT_THAT(unsure.guilty, ElementsAre());
  EXPECT_THAT(unsure.candidates, ElementsAre(2));
  EXPECT_THAT(unsure.missing, ElementsAre(HasSubstr("whether clocks agree: rank 2")));
}

TEST(LateArrivals, AClockThatIsAheadAccusesNobody) {
  for (const double ahead_ms : {-30.0, 10.0, 30.0}) {
    const FlightFinding found = MadeJob{.clock_ahead_ms = ahead_ms}.finding();
    EXPECT_THAT(found.guilty, ElementsAre()) << ahead_ms;
  }
  const FlightFinding found = MadeJob{.clock_ahead_ms = 5000}.finding();
  EXPECT_EQ(found.kind, FlightClass::nothing);
  EXPECT_THAT(found.evidence, ElementsAre(HasSubstr("clocks differ (rank 2 by 5000 ms")));
}

TEST(LateArrivals, ALittleLatenessAndFewStepsAreNothing) {
  EXPECT_EQ((MadeJob{.late = 1, .late_ms = 4}.finding().kind), FlightClass::nothing);
  EXPECT_EQ((MadeJob{.steps = 5, .late = 1, .late_ms = 40}.finding().kind), FlightClass::nothing);
}

// A scheduler's tick makes any rank of a busy machine so late.
TEST(LateArrivals, LessThanAMillisecondIsNothing) {
  const MadeJob job{.late = 1, .step_ms = 4, .late_ms = 0.9, .jitter_ms = 0.01};
  EXPECT_EQ(job.finding().kind, FlightClass::nothing);
  MadeJob longer = job;
  longer.late_ms = 1.2;
  EXPECT_EQ(longer.finding().guilty, RankSet{1});
}

TEST(LateArrivals, SeveralAreNamedWhereTheyAreTheFew) {
  std::vector<FlightDump> dumps = MadeJob{.world_size = 6, .late = 4, .late_ms = 30}.dumps();
  dumps[1].entries = dumps[4].entries;
  FlightFinding found;
  find_late_arrivals(dumps, &found);
  EXPECT_THAT(found.guilty, ElementsAre(1, 4));
}

TEST(LateArrivals, OfTwoGroupsWithOtherLateRanksNobodyIsNamed) {
  std::vector<FlightDump> dumps = MadeJob{.late = 1, .before_bucket = 1, .late_ms = 30}.dumps();
  const std::vector<FlightDump> others =
      MadeJob{.late = 2, .before_bucket = 1, .late_ms = 30}.dumps();
  for (size_t rank = 0; rank < dumps.size(); ++rank)
    for (FlightEntry entry : others[rank].entries) {
      entry.group = "1";
      dumps[rank].entries.push_back(entry);
    }
  FlightFinding found;
  find_late_arrivals(dumps, &found);
  EXPECT_FALSE(found.decided);
  EXPECT_THAT(found.candidates, ElementsAre(1, 2));
}

TEST(LateArrivals, WhereRanksTakeTurnsInAStepOrDumpsAreMissingNobodyIsNamed) {
  std::vector<FlightDump> dumps = MadeJob{.late = 1, .before_bucket = 1, .late_ms = 20}.dumps();
  FlightFinding partial;
  partial.ranks = 4;
  find_late_arrivals(dumps, &partial);
  EXPECT_FALSE(partial.decided);
  EXPECT_THAT(partial.candidates, ElementsAre(1));
  EXPECT_THAT(partial.missing, ElementsAre(HasSubstr("the dumps of 1 rank, ")));
  for (size_t call = 5; call < dumps[0].entries.size(); ++call)
    if ((call - 5) % 4 == 3) dumps[0].entries[call].created_ns += 38'000'000;
  FlightFinding turns;
  find_late_arrivals(dumps, &turns);
  EXPECT_FALSE(turns.decided);
  EXPECT_THAT(turns.candidates, ElementsAre(0, 1));
  EXPECT_THAT(turns.missing, ElementsAre(HasSubstr("which rank makes a step long: rank ")));
}

// Of a pipeline's stages one is last in each step by design, not within a group of one stage.
TEST(LateArrivals, OfAPipelinesStagesNobodyIsNamedByWhatAllStagesCall) {
  const auto all = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1, 2});
  std::vector<FlightDump> dumps = MadeJob{.late = 0, .before_bucket = 2, .late_ms = 30}.dumps();
  FlightEntry transfer;
  transfer.group = "pp";
  transfer.operation = "recv";
  transfer.point_to_point = true;
  transfer.own_number = 0;
  transfer.peer = 1;
  dumps[0].groups["pp"] = {"pp", all};
  dumps[0].entries.push_back(transfer);
  FlightFinding staged;
  find_late_arrivals(dumps, &staged);
  EXPECT_FALSE(staged.decided);
  EXPECT_THAT(staged.candidates, ElementsAre(0));
  EXPECT_THAT(staged.missing,
              ElementsAre(HasSubstr("whether it is by design that rank 0 is late")));

  dumps[0].groups["pp"] = {"pp",
                           std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 7})};
  FlightFinding of_one_stage;  // who sends to rank 7, which is not in this group
  find_late_arrivals(dumps, &of_one_stage);
  EXPECT_THAT(of_one_stage.guilty, ElementsAre(0));
}

// In a broadcast by a tree who sends to a late rank waits for it, and then comes late as well.
TEST(LateArrivals, WhoWaitedInABroadcastForTheLateRankIsItsVictim) {
  std::vector<FlightDump> dumps =
      MadeJob{.world_size = 4, .buckets = 2, .late = 3, .late_ms = 20}.dumps();
  for (FlightDump& dump : dumps)
    for (size_t call = 5; call < dump.entries.size(); call += 2)
      dump.entries[call].operation = "broadcast";
  for (size_t call = 6; call < dumps[1].entries.size(); call += 2)
    dumps[1].entries[call].created_ns = dumps[3].entries[call].created_ns + 1000;
  FlightFinding found;
  find_late_arrivals(dumps, &found);
  EXPECT_THAT(found.guilty, ElementsAre(3));
  EXPECT_THAT(found.victims, ElementsAre(0, 1, 2));
  std::vector<FlightDump> reduced =
      dumps;  // for whom all ranks wait, so that rank 1 is late itself
  for (FlightDump& dump : reduced)
    for (FlightEntry& entry : dump.entries) entry.operation = "all_reduce";
  FlightFinding both;
  find_late_arrivals(reduced, &both);
  EXPECT_FALSE(both.decided);
}

MadeJob drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  MadeJob job;
  job.seed = seed;
  job.world_size = std::vector<int64_t>{2, 3, 4, 6, 7, 16}[static_cast<size_t>(below(6))];
  job.buckets = 1 + below(8);
  job.alike = below(2) == 0;
  job.step_ms = 10 + static_cast<double>(below(300));
  job.jitter_ms = job.step_ms * 0.003 * static_cast<double>(1 + below(5));
  return job;
}

TEST(LateArrivals, OfAThousandHealthyJobsNobodyIsAccused) {
  for (uint64_t seed = 1; seed <= 1000; ++seed)
    EXPECT_EQ(drawn(seed).finding().kind, FlightClass::nothing) << "seed " << seed;
}

// Ranks that wait for cores are late by much of a step, all of them and without a pattern.
TEST(LateArrivals, OfAThousandHealthyJobsOfAnOverloadedMachineNobodyIsAccused) {
  int undecided = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    MadeJob job = drawn(seed);
    job.steps = 6 + static_cast<int64_t>(seed % 7);
    job.jitter_ms = job.step_ms * 0.1 * static_cast<double>(1 + seed % 6);
    const FlightFinding found = job.finding();
    EXPECT_TRUE(found.guilty.empty()) << "seed " << seed;
    undecided += found.decided ? 0 : 1;
  }
  EXPECT_LE(undecided, 30);
}

TEST(LateArrivals, OfAThousandWithAStragglerOfATenthTheRightRankIsNamed) {
  int right = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    MadeJob job = drawn(seed);
    job.late = static_cast<int64_t>(seed % static_cast<uint64_t>(job.world_size));
    job.before_bucket = static_cast<int64_t>(seed % static_cast<uint64_t>(job.buckets));
    job.late_ms = job.step_ms * (0.1 + 0.001 * static_cast<double>(seed % 400));
    const FlightFinding found = job.finding();
    right += found.guilty == RankSet{job.late} ? 1 : 0;
    EXPECT_TRUE(found.guilty.empty() || found.guilty == RankSet{job.late}) << "seed " << seed;
  }
  EXPECT_GE(right, 990);
}

}  // namespace
}  // namespace lockstep
