#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "sim/judge/lanes.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kReplay = static_cast<int32_t>(Lane::replay);
constexpr auto kReplica = static_cast<int32_t>(Lane::replica);
constexpr auto kFloat64 = static_cast<int32_t>(Lane::float64);
constexpr auto kRounding = static_cast<int32_t>(Lane::rounding);

TEST(Lanes, PassWhereAllRanksReachedTheEndAndControlsWereDetected) {
  const RunResult result = Outcome().judge();
  EXPECT_EQ(result.verdict, Verdict::pass);
  ASSERT_EQ(result.lanes.size(), 3u);
  for (const LaneResult& lane : result.lanes) {
    EXPECT_EQ(lane.verdict, LaneVerdict::pass) << to_word(lane.lane) << ": " << lane.reason;
    EXPECT_EQ(lane.control, ControlVerdict::detected);
    EXPECT_EQ(lane.compared, 160);
  }
  EXPECT_EQ(result.final_hash, "00000000000000220000000000000011");
}

TEST(Lanes, ReplicaFailsWhereChainsPart) {
  Outcome outcome;
  outcome.part(2, 0, 3);
  outcome.part(2, 2, 2);
  outcome.part(3, 2, 2);
  const auto split = find_replica_split(views_of(outcome.run));
  ASSERT_TRUE(split);
  EXPECT_EQ(split->step, 2);
  EXPECT_EQ(split->state_kind, StateKind::parameter);
  EXPECT_THAT(split->ranks, ElementsAre(2, 3));
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::fail);
  EXPECT_EQ(outcome.lane(Lane::replica).reason,
            "ranks 2 3 differ from rank 0 in parameter of step 2");
}

TEST(Lanes, ReplicaForgivesDroppedEventsIfTheLastHashesAgree) {
  Outcome outcome;
  outcome.remove(1, [](const Event& e) { return e.step < 3 && e.kind == 7; });
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::pass);
  outcome.remove(1, [](const Event& e) { return e.kind == 7 && e.subject == 2; });
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::inconclusive);
}

TEST(Lanes, ReplicaNeedsNoBuffersAndNoOptimizerStateIfNoRankHasThem) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.remove_kind(rank, EventKind::state_hash, 1);
    outcome.remove_kind(rank, EventKind::state_hash, 3);
  }
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::pass);
}

TEST(Lanes, ReplicaDoesNotPassWhereRankZeroAloneHasNoBuffers) {
  Outcome outcome;
  outcome.remove_kind(0, EventKind::state_hash, 1);
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(outcome.lane(Lane::replica).reason,
            "rank 1 has hashes of kind buffer, rank 0 has none");
}

// Of draws that no golden run repeats nothing is said, whatever the comparison found.
TEST(Lanes, DoNotApplyWhereAForwardDrewFromTheDefaultGenerator) {
  Outcome outcome;
  outcome.run.plan.scenario.model.kind = "registered";
  outcome.run.plan.scenario.model.options.set("name", std::string("noisy"));
  MismatchEvidence e;
  e.lane = Lane::replay;
  e.step = 1;
  e.state_kind = StateKind::gradient;
  outcome.mismatch(2, Lane::replay, e);
  Evidence evidence = *evidence_from_json_text(outcome.run.evidence[2]);
  evidence.undeclared_draws = true;
  evidence.random_layers = {"drop1", "block.drop"};
  outcome.run.evidence[2] = to_json_text(evidence);
  const RunResult result = outcome.judge();
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::pass);
  for (const Lane lane : {Lane::replay, Lane::float64}) {
    EXPECT_EQ(outcome.lane(lane).verdict, LaneVerdict::not_applicable);
    EXPECT_THAT(outcome.lane(lane).reason,
                testing::AllOf(HasSubstr("model \"noisy\""), HasSubstr("drop1, block.drop")));
  }
  EXPECT_FALSE(result.first_divergence);
  EXPECT_EQ(result.verdict, Verdict::pass);
  evidence.undeclared_draws = false;
  outcome.run.evidence[2] = to_json_text(evidence);
  EXPECT_EQ(outcome.judge().verdict, Verdict::fail);
  evidence.unrepeatable_forward = true;
  outcome.run.evidence[2] = to_json_text(evidence);
  EXPECT_EQ(outcome.judge().verdict, Verdict::pass);
  EXPECT_EQ(outcome.lane(Lane::replay).verdict, LaneVerdict::not_applicable);
  EXPECT_THAT(outcome.lane(Lane::replay).reason,
              testing::AllOf(HasSubstr("model \"noisy\""), HasSubstr("a generator of its own")));
}

// Ranks 1 and 3 have three batches, ranks 0 and 2 fewer; in the end all get the same weights.
Outcome joined() {
  Outcome outcome;
  Scenario& s = outcome.run.plan.scenario;
  const std::vector<int64_t> batches = {1, 3, 2, 3};
  s.join_divide_by = "active_ranks";
  s.batch_size = 8;
  s.data.options.set("samples", int64_t{24});
  s.split.options.set("batches_per_rank", batches);
  for (size_t rank : {0, 2})
    outcome.remove(rank, [&](const Event& e) {
      const bool is_hash = static_cast<EventKind>(e.kind) == EventKind::state_hash;
      const bool is_final = e.step == 3 && e.subject == 2;
      return is_hash && e.step > batches[rank] && !is_final;
    });
  return outcome;
}

TEST(Lanes, ReplicaComparesTheRanksThatHadABatch) {
  EXPECT_EQ(joined().lane(Lane::replica).verdict, LaneVerdict::pass)
      << joined().lane(Lane::replica).reason;
  Outcome parted = joined();
  parted.part(3, 0, 2);
  EXPECT_EQ(parted.lane(Lane::replica).reason, "rank 3 differs from rank 1 in gradient of step 2");
  Outcome left_behind = joined();
  left_behind.part(0, 2, 3);
  EXPECT_EQ(left_behind.lane(Lane::replica).reason,
            "ranks 1 2 3 differ from rank 0 in parameter of step 3");
  Outcome unfinished = joined();
  unfinished.remove(2, [](const Event& e) { return e.kind == 7 && e.step == 3; });
  EXPECT_EQ(unfinished.lane(Lane::replica).verdict, LaneVerdict::inconclusive);
}

TEST(Lanes, ReplicaOfRanksThatJoinedWantsTheSameFinalWeights) {
  Outcome outcome = joined();
  outcome.change(2, EventKind::final_hash_low, -1, [](Event& e) { e.value ^= 1; });
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::fail);
  EXPECT_EQ(outcome.lane(Lane::replica).reason,
            "rank 2 differs from rank 0 in the final weights or buffers");
  outcome.remove_kind(2, EventKind::final_hash_low, -1);
  outcome.remove_kind(2, EventKind::final_hash_high, -1);
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::inconclusive);
}

TEST(Lanes, ModelsThatAreAveragedAreComparedThen) {
  Outcome outcome;
  Scenario& s = outcome.run.plan.scenario;
  s.comm_hook = {"post_local_sgd", {}};
  s.comm_hook.options.set("start_step", int64_t{1});
  s.model_averaging = {"periodic", {}};
  s.model_averaging.options.set("period", int64_t{2});
  s.model_averaging.options.set("warmup_steps", int64_t{1});  // after step 2
  for (size_t rank = 0; rank < 4; ++rank)
    outcome.remove(rank, [](const Event& e) {
      const auto kind = static_cast<EventKind>(e.kind);
      const bool averaged = e.step == 2 && e.subject == 2;
      if (kind == EventKind::state_hash) return e.step > 0 && !averaged;
      return kind == EventKind::compared && e.subject == kFloat64 && e.step == 3;
    });
  for (const Lane lane : {Lane::replica, Lane::replay, Lane::float64})
    EXPECT_EQ(outcome.lane(lane).verdict, LaneVerdict::pass)
        << to_word(lane) << ": " << outcome.lane(lane).reason;
  outcome.remove(1, [](const Event& e) {
    return static_cast<EventKind>(e.kind) == EventKind::compared && e.subject == kReplay &&
           e.step == 3;
  });
  EXPECT_EQ(outcome.lane(Lane::replay).verdict, LaneVerdict::inconclusive);
}

TEST(Lanes, ARankThatStoppedEarlyIsInconclusive) {
  Outcome outcome;
  outcome.remove(3, [](const Event& e) {
    return e.step == 3 && static_cast<EventKind>(e.kind) == EventKind::compared;
  });
  EXPECT_EQ(outcome.lane(Lane::replay).verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(outcome.lane(Lane::replay).reason, "rank 3 compared up to step 2 of 3");
}

TEST(Lanes, NothingComparedIsInconclusive) {
  Outcome outcome;
  outcome.remove_kind(1, EventKind::compared, kReplay);
  EXPECT_EQ(outcome.lane(Lane::replay).reason, "rank 1 compared nothing");
  EXPECT_EQ(outcome.judge().verdict, Verdict::inconclusive);
  EXPECT_EQ(outcome.judge().met, std::nullopt);
}

TEST(Lanes, AMissedControlMakesTheLaneVoid) {
  Outcome outcome;
  outcome.change(2, EventKind::control, kReplay, [](Event& e) { e.value = 0; });
  EXPECT_EQ(outcome.lane(Lane::replay).verdict, LaneVerdict::voided);
  EXPECT_EQ(outcome.lane(Lane::replay).control, ControlVerdict::missed);
  EXPECT_EQ(outcome.judge().verdict, Verdict::inconclusive);
}

TEST(Lanes, AControlMissedOnceStaysMissed) {
  Outcome outcome;
  outcome.change(2, EventKind::control, kReplay, [](Event& e) { e.value = 0; });
  outcome.add(2, EventKind::control, 3, kReplay, 1);
  EXPECT_EQ(outcome.lane(Lane::replay).verdict, LaneVerdict::voided);
}

TEST(Lanes, WhatTheDoubleRunRecordsIsNotThePrimaryRuns) {
  Outcome outcome;
  outcome.add(1, EventKind::state_hash, 3, 0, 0xBAD);
  outcome.add(1, EventKind::collective_hash, 3, -1, 0xBAD);
  outcome.add(0, EventKind::final_hash_low, 3, -1, 0xBAD);
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.verdict, Verdict::pass);
  EXPECT_EQ(result.final_hash, "00000000000000220000000000000011");
}

TEST(Lanes, AControlThatDidNotRunIsInconclusive) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) outcome.remove_kind(rank, EventKind::control, kReplica);
  EXPECT_EQ(outcome.lane(Lane::replica).verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(outcome.lane(Lane::replica).control, ControlVerdict::not_run);
}

LaneResult at_distance(double distance) {
  Outcome outcome;
  outcome.change(1, EventKind::distance, kFloat64, [&](Event& e) {
    if (e.step >= 2) e.value = std::bit_cast<uint64_t>(distance);
  });
  return outcome.lane(Lane::float64);
}

TEST(Lanes, Float64FailsBeyondItsBound) {
  const LaneResult lane = at_distance(2e-9);
  EXPECT_EQ(lane.verdict, LaneVerdict::fail);
  EXPECT_EQ(*lane.distance, 2e-9);
  EXPECT_EQ(lane.reason,
            "rank 1 differs from the golden run, first after step 2: distance 2e-09, bound 1e-12");
}

TEST(Lanes, Float64IsNotSureALittleBeyond) {
  EXPECT_EQ(at_distance(1e-12).verdict, LaneVerdict::pass);
  const LaneResult lane = at_distance(2e-12);
  EXPECT_EQ(lane.verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(lane.reason,
            "rank 1 differs from the golden run, first after step 2: distance 2e-12, bound 1e-12, "
            "but rounding alone may lead to 1e-10");
  EXPECT_EQ(at_distance(1e-10).verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(at_distance(1.01e-10).verdict, LaneVerdict::fail);
}

TEST(Lanes, ADistanceThatIsNoNumberFails) {
  Outcome outcome;
  outcome.change(0, EventKind::distance, kFloat64, [](Event& e) {
    if (e.step == 2) e.value = std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
  });
  EXPECT_EQ(outcome.lane(Lane::float64).verdict, LaneVerdict::fail);
  EXPECT_TRUE(std::isnan(*outcome.lane(Lane::float64).distance));
}

TEST(Lanes, Float64IsNotDecidedByThePrimaryRunAlone) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) outcome.remove_kind(rank, EventKind::distance, kFloat64);
  EXPECT_EQ(outcome.lane(Lane::float64).verdict, LaneVerdict::inconclusive);
}

Outcome rounding(double worst) {
  Outcome outcome(4, 3, {Lane::rounding});
  RankRecords golden;
  golden.rank = -1;
  for (int64_t step = 1; step <= 3; ++step)
    golden.events.push_back(Outcome::event(EventKind::statistic, step, kRounding,
                                           std::bit_cast<uint64_t>(step == 2 ? worst : 1.0)));
  golden.events.push_back(Outcome::event(EventKind::control, 1, kRounding, 1));
  outcome.run.goldens.push_back(golden);
  return outcome;
}

TEST(Lanes, RoundingPassesUpToItsThreshold) {
  EXPECT_EQ(rounding(8).lane(Lane::rounding).verdict, LaneVerdict::pass);
  EXPECT_EQ(*rounding(8).lane(Lane::rounding).statistic, 8);
  EXPECT_EQ(rounding(8.5).lane(Lane::rounding).verdict, LaneVerdict::fail);
  EXPECT_EQ(rounding(8.5).judge().first_divergence->step, 2);
  EXPECT_EQ(rounding(8.5).judge().first_divergence->cause, "precision");
  const LaneResult nan = rounding(std::numeric_limits<double>::quiet_NaN()).lane(Lane::rounding);
  EXPECT_EQ(nan.verdict, LaneVerdict::fail);
  EXPECT_TRUE(std::isnan(*nan.statistic));
}

TEST(Lanes, RoundingNeedsEveryStep) {
  Outcome outcome = rounding(1);
  outcome.run.goldens[0].events.erase(outcome.run.goldens[0].events.begin());
  EXPECT_EQ(outcome.lane(Lane::rounding).verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(outcome.lane(Lane::rounding).reason, "no statistic for 1 of 3 steps");
}

TEST(Lanes, CommunicationPassesUpToItsBound) {
  const auto with = [](double worst) {
    Outcome outcome(4, 3, {Lane::communication});
    RankRecords golden;
    golden.rank = -1;
    const auto lane = static_cast<int32_t>(Lane::communication);
    for (int64_t step = 1; step <= 3; ++step)
      golden.events.push_back(Outcome::event(EventKind::statistic, step, lane,
                                             std::bit_cast<uint64_t>(step == 2 ? worst : 0.4)));
    golden.events.push_back(Outcome::event(EventKind::control, 1, lane, 1));
    outcome.run.goldens.push_back(golden);
    return outcome;
  };
  EXPECT_EQ(with(1).lane(Lane::communication).verdict, LaneVerdict::pass);
  EXPECT_EQ(with(1.01).lane(Lane::communication).verdict, LaneVerdict::fail);
  EXPECT_EQ(with(1.01).lane(Lane::communication).reason,
            "the error over its bound is 1.01 at most, first beyond the threshold of 1 in step 2");
  EXPECT_EQ(with(1.01).judge().first_divergence->step, 2);
}

TEST(Lanes, NotApplicableLeavesTheVerdictToTheOthers) {
  Outcome outcome;
  outcome.run.plan.not_applicable = {{Lane::replay, "the order of addition is unknown"}};
  EXPECT_EQ(outcome.lane(Lane::replay).verdict, LaneVerdict::not_applicable);
  EXPECT_EQ(outcome.judge().verdict, Verdict::pass);
  outcome.run.plan.not_applicable = {
      {Lane::replay, "x"}, {Lane::replica, "x"}, {Lane::float64, "x"}};
  EXPECT_EQ(outcome.judge().verdict, Verdict::inconclusive);
}

}  // namespace

}  // namespace lockstep
