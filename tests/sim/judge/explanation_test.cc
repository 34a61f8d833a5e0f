#include "sim/judge/explanation.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "scenarios/manifest.h"
#include "tests/sim/judge/incident.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using StopPlace = Incident::Place;

constexpr int64_t kMillisecond = Incident::kMs;

Incident stopped_in(StopPlace place) {
  Incident incident(4, 2, place);
  incident.others_time_out();
  incident.ended(2, incident.run.failed_ns + 1000 * kMillisecond).state = Incident::stopped();
  return incident;
}

TEST(Explanation, WhoNeverEnteredWhat) {
  const Failure f = stopped_in(StopPlace::mid_bucket).failure();
  EXPECT_EQ(f.message,
            "rank 2 never entered all_reduce 5 (bucket 1, 1.0 MB): in backward of step 2 for "
            "2.0 s, stopped (state T); ranks 0 and 1 timed out after 2.0 s because of it");
  const Explanation& e = f.explanation;
  ASSERT_TRUE(e.collective);
  EXPECT_EQ(e.collective->operation, "all_reduce");
  EXPECT_EQ(e.collective->sequence, 5);
  EXPECT_EQ(e.collective->bucket, 1);
  EXPECT_EQ(e.collective->bytes, 1'000'000);
  EXPECT_THAT(e.missing, ElementsAre(2));
  EXPECT_THAT(e.entered, ElementsAre(0, 1, 3));
  EXPECT_THAT(e.waited, ElementsAre(0, 1));
  ASSERT_EQ(e.doing.size(), 1u);
  EXPECT_EQ(e.doing[0].phase, "backward");
  EXPECT_EQ(e.doing[0].step, 2);
  EXPECT_EQ(e.doing[0].state, "stopped (state T)");
  EXPECT_EQ(e.doing[0].last_event, "arrival of all_reduce 4 (bucket 0, 1.0 MB)");
}

TEST(Explanation, TheLayerIsTheManifests) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  incident.run.plan.scenario.model = {"linear", {}};
  incident.run.plan.scenario.model.options.set("in_features", int64_t{4});
  incident.run.plan.scenario.model.options.set("out_features", int64_t{4});
  incident.run.plan.scenario.model.options.set("bias", true);
  const auto manifest = manifest_of(incident.run.plan.scenario.model, "float32");
  ASSERT_TRUE(manifest);
  const std::string& name = manifest->parameters.at(1).name;
  EXPECT_EQ(incident.failure().explanation.doing[0].layer, name.substr(0, name.rfind('.')));
}

TEST(Explanation, ACollectiveThatAllEnteredAndNobodyEnded) {
  const Failure f = stopped_in(StopPlace::in_collective).failure();
  ASSERT_TRUE(f.explanation.collective);
  EXPECT_EQ(f.explanation.collective->sequence, 5);
  EXPECT_THAT(f.explanation.missing, IsEmpty());
  EXPECT_THAT(f.explanation.entered, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(f.message,
            "rank 2 did not come out of all_reduce 5 (bucket 1, 1.0 MB): in backward of step 2 for "
            "2.0 s, stopped (state T); ranks 0 and 1 timed out after 2.0 s because of it");
}

TEST(Explanation, BeforeTheFirstCollectiveThereIsNone) {
  const Failure f = stopped_in(StopPlace::rendezvous).failure();
  EXPECT_FALSE(f.explanation.collective);
  EXPECT_EQ(f.message,
            "rank 2 made no progress in rendezvous for 2.0 s, stopped (state T); its last event: "
            "begin of rendezvous; ranks 0 and 1 timed out after 2.0 s because of it");
}

TEST(Explanation, ADeadRankIsAskedByItsRecords) {
  Incident incident(3, 1, StopPlace::first_step);
  const int64_t at = incident.last_ns() + 40 * kMillisecond;
  incident.end(1, at).signal = SIGKILL;
  incident.others_lose_a_peer(at);
  const Failure f = incident.failure();
  EXPECT_EQ(f.message,
            "rank 1 was killed by SIGKILL (9) in forward of step 1; it never entered all_reduce 2 "
            "(bucket 0, 1.0 MB)");
  EXPECT_EQ(f.explanation.doing.at(0).state, "killed by SIGKILL (9)");
  EXPECT_EQ(f.explanation.doing.at(0).for_ms, (at - incident.silent_ns()) / kMillisecond);
  EXPECT_DOUBLE_EQ(f.detected_ms.value(), 1.0);
}

// What it did after the others had given up is no excuse, and no whereabouts.
TEST(Explanation, AsItStoodWhenTheRunHadFailed) {
  Incident incident(2, 1, StopPlace::first_step);
  incident.others_time_out();
  const int64_t silent = incident.silent_ns();
  Event late = Incident::event(EventKind::arrival, 1, 0, Phase::backward, 2);
  late.time_ns = incident.run.failed_ns + 10 * kMillisecond;
  incident.run.ranks[1].events.push_back(late);
  incident.give_up(1, ErrorKind::peer_lost, "all_reduce: connection closed",
                   late.time_ns + kMillisecond);
  const Failure f = incident.failure();
  EXPECT_EQ(f.rank, 1);
  EXPECT_EQ(f.kind, "hang");
  EXPECT_THAT(f.explanation.missing, ElementsAre(1));
  EXPECT_EQ(f.explanation.doing.at(0).for_ms, (incident.run.failed_ns - silent) / kMillisecond);
}

TEST(Explanation, NothingIsSaidWhereArrivalsWereDropped) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  std::erase_if(incident.run.ranks[1].events,
                [](const Event& e) { return e.kind == static_cast<uint16_t>(EventKind::arrival); });
  incident.run.ranks[1].dropped = 1000;
  EXPECT_FALSE(incident.failure().explanation.collective);
  EXPECT_EQ(incident.failure().rank, 2);
}

TEST(Explanation, WithinIsMeasuredFromTheFirstReceiptOfAFault) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  const double from_begin =
      static_cast<double>(incident.run.failed_ns - incident.run.began_ns) * 1e-6;
  EXPECT_DOUBLE_EQ(incident.failure().after_ms.value(), from_begin);
  Event receipt = Incident::event(EventKind::receipt, 2, 0, Phase::backward);
  receipt.time_ns = incident.silent_ns();
  incident.run.ranks[2].events.push_back(receipt);
  EXPECT_DOUBLE_EQ(incident.failure().after_ms.value(), from_begin);  // a mutant's
  incident.run.ranks[2].events.back().subject = kFirstFault;
  EXPECT_DOUBLE_EQ(incident.failure().after_ms.value(), incident.failure().detected_ms.value());
}

TEST(Explanation, IsJudgedAgainstWhatMustBeNamed) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  Expectation& expect = incident.run.plan.scenario.expect[0];
  expect.named_collective = 5;
  expect.named_bucket = 1;
  expect.named_phase = "backward";
  expect.within_ms = 2400;  // from the begin of the run
  EXPECT_THAT(judge_run(incident.run).unmet, IsEmpty());
  EXPECT_EQ(judge_run(incident.run).met, true);
  EXPECT_EQ(judge_run(incident.run).expected,
            "failed, collective 5, in bucket 1, in backward, within 2400 ms");
  expect.named_collective = 6;
  expect.named_bucket = 0;
  expect.named_phase = "forward";
  expect.within_ms = 2000;
  EXPECT_THAT(judge_run(incident.run).unmet,
              ElementsAre("named collective: expected 6, got 5", "named bucket: expected 0, got 1",
                          "named phase: expected forward, got backward", testing::_));
  EXPECT_EQ(judge_run(incident.run).met, false);
}

TEST(Explanation, AStackHasAtMostTwentyFrames) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  incident.run.ends.back().state = Incident::asleep("futex");
  incident.run.ends.back().state->stack.assign(64, "frame");
  EXPECT_EQ(incident.failure().stack.size(), 20u);
  EXPECT_EQ(as_json(judge_run(incident.run))["failure"]["stack"].size(), 20u);
}

}  // namespace
}  // namespace lockstep
