#include <gmock/gmock.h>

#include "sim/analysis/recording.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

using Ended = RecordedEnd::Kind;

class RecordedEndTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;

  explicit RecordedEndTest(int64_t world_size = 3) {
    MadeRun made;
    made.world_size = world_size;
    made.steps = 6;
    run = made.make();
    for (size_t rank = 0; rank < run.ranks.size(); ++rank) say(rank, EventKind::finished, 1000);
  }
  std::vector<Event>& of(size_t rank) { return run.ranks[rank].events; }
  void say(size_t rank, EventKind kind, int64_t after_ns) {
    const Event last = of(rank).back();
    of(rank).push_back(
        {last.time_ns + after_ns, 0, static_cast<uint16_t>(kind), last.phase, last.step, -1, 0});
  }
  // A rank's events from this one on, in that step, are gone.
  void cut_from(size_t rank, int64_t step, EventKind kind, Phase phase, int32_t bucket = -1) {
    auto& events = of(rank);
    const auto at = std::find_if(events.begin(), events.end(), [&](const Event& event) {
      return event.step == step && event.kind == static_cast<uint16_t>(kind) &&
             event.phase == static_cast<uint16_t>(phase) && event.subject == bucket;
    });
    ASSERT_NE(at, events.end());
    events.erase(at, events.end());
  }
  // After it has entered the first bucket's collective of step 4, nothing more happens to a rank.
  void waits(size_t rank) { cut_from(rank, 4, EventKind::end, Phase::wait, 0); }
  RecordedEnd end() const { return end_of_recording(run); }

  RunOutcome run;
};

TEST_F(RecordedEndTest, Whole) {
  EXPECT_EQ(end().kind, Ended::whole);
  EXPECT_EQ(end().last_whole_step, 6);
  EXPECT_FALSE(end().meeting);
}

TEST_F(RecordedEndTest, WhoWasKilledNeverCame) {
  const RunOutcome whole = run;
  for (const bool they_notice : {false, true}) {
    SCOPED_TRACE(they_notice);
    cut_from(1, 4, EventKind::phase_begin, Phase::backward);
    for (const size_t rank : {0, 2}) {
      waits(rank);
      if (they_notice) say(rank, EventKind::error, rank == 0 ? 20'000'000 : 10'000'000);
    }
    const RecordedEnd found = end();
    EXPECT_EQ(found.kind, Ended::failed);
    EXPECT_EQ(found.last_whole_step, 3);
    ASSERT_TRUE(found.meeting);
    EXPECT_THAT(found.meeting->absent, ::testing::ElementsAre(1));
    EXPECT_THAT(found.meeting->waited, ::testing::ElementsAre(0, 2));
    EXPECT_EQ(found.meeting->step, 4);
    EXPECT_EQ(found.meeting->bucket, 0);
    EXPECT_EQ(found.ranks[1].how, RecordedEnd::How::cut);
    run = whole;
  }
}

TEST_F(RecordedEndTest, WhoSleptThroughTheTimeOutCameLate) {
  for (const size_t rank : {0, 2}) {
    waits(rank);
    say(rank, EventKind::error, 10 * kSecond);
  }
  // Rank 1 wakes up and goes its way, until it fails as well.
  waits(1);
  for (Event& event : of(1))
    if (event.step == 4) event.time_ns += 40 * kSecond;
  say(1, EventKind::error, 1'000'000);
  const RecordedEnd found = end();
  EXPECT_EQ(found.kind, Ended::failed);
  ASSERT_TRUE(found.meeting);
  EXPECT_TRUE(found.meeting->absent.empty());
  EXPECT_THAT(found.meeting->late, ::testing::ElementsAre(1));
  EXPECT_THAT(found.meeting->waited, ::testing::ElementsAre(0, 2));
  EXPECT_NEAR(static_cast<double>(found.meeting->waited_ns), 10e9, 1e9);
  EXPECT_NEAR(static_cast<double>(found.meeting->late_ns), 40e9, 1e9);
}

TEST_F(RecordedEndTest, NobodySaidWhyAndOneCameLongAfterTheOthers) {
  for (const size_t rank : {0, 1, 2}) waits(rank);
  for (Event& event : of(2))
    if (event.step == 4) event.time_ns += 40 * kSecond;
  const RecordedEnd found = end();
  EXPECT_EQ(found.kind, Ended::failed);
  ASSERT_TRUE(found.meeting);
  EXPECT_THAT(found.meeting->late, ::testing::ElementsAre(2));
}

TEST_F(RecordedEndTest, AJobThatIsKilledAsAWholeIsNobodysFault) {
  for (const size_t rank : {0, 1, 2}) cut_from(rank, 4, EventKind::phase_begin, Phase::backward);
  EXPECT_EQ(end().kind, Ended::unfinished);
  EXPECT_FALSE(end().meeting);
  EXPECT_FALSE(end().failed_first);
}

TEST_F(RecordedEndTest, InTheBroadcastOfBuffers) {
  // Rank 1 dies before it comes to forward, where the others are.
  cut_from(1, 4, EventKind::phase_begin, Phase::forward);
  for (const size_t rank : {0, 2}) {
    cut_from(rank, 4, EventKind::phase_begin, Phase::backward);
    say(rank, EventKind::error, 15'000'000);
  }
  const RecordedEnd found = end();
  ASSERT_TRUE(found.meeting);
  EXPECT_THAT(found.meeting->absent, ::testing::ElementsAre(1));
  EXPECT_EQ(found.meeting->phase, Phase::forward);
  EXPECT_FALSE(found.meeting->bucket);
}

TEST_F(RecordedEndTest, ErrorsOfOnesOwnAccuseNobodyElse) {
  // Rank 0 throws in forward; the others are a little behind, and die of it later.
  for (const size_t rank : {0, 1, 2}) cut_from(rank, 4, EventKind::phase_begin, Phase::backward);
  for (const size_t rank : {1, 2})
    for (Event& event : of(rank))
      if (event.step == 4 && event.phase == static_cast<uint16_t>(Phase::forward))
        event.time_ns += 3'000'000;
  say(0, EventKind::error, 1'000'000);
  for (const size_t rank : {1, 2}) say(rank, EventKind::error, 200'000'000);
  const RecordedEnd found = end();
  EXPECT_EQ(found.kind, Ended::failed);
  EXPECT_FALSE(found.meeting);
  EXPECT_EQ(found.failed_first, 0);
}

TEST_F(RecordedEndTest, WhoHadFewerBatchesNeverCame) {
  cut_from(2, 4, EventKind::phase_begin, Phase::load);
  say(2, EventKind::finished, 1000);
  for (const size_t rank : {0, 1}) {
    waits(rank);
    say(rank, EventKind::error, 20'000'000);
  }
  const RecordedEnd found = end();
  ASSERT_TRUE(found.meeting);
  EXPECT_THAT(found.meeting->absent, ::testing::ElementsAre(2));
  EXPECT_EQ(found.ranks[2].how, RecordedEnd::How::finished);
}

TEST_F(RecordedEndTest, WhoIsEndedByTheLauncherAfterwardsIsNotNamed) {
  cut_from(1, 4, EventKind::phase_begin, Phase::backward);  // killed
  waits(0);
  say(0, EventKind::error, 5'000'000);
  // Rank 2 is slower, alive when rank 0 gave up, and gets SIGTERM then.
  for (Event& event : of(2))
    if (event.step == 4) event.time_ns += kSecond;
  cut_from(2, 4, EventKind::phase_begin, Phase::wait);
  const RecordedEnd found = end();
  ASSERT_TRUE(found.meeting);
  EXPECT_THAT(found.meeting->absent, ::testing::ElementsAre(1));
}

TEST_F(RecordedEndTest, DroppedEventsAccuseNobody) {
  for (size_t rank : {0, 1, 2}) {
    auto& events = of(rank);
    events.erase(events.begin(), events.begin() + static_cast<ptrdiff_t>(10 + 7 * rank));
    run.ranks[rank].dropped = 10 + 7 * rank;
  }
  EXPECT_EQ(end().kind, Ended::whole);
}

TEST_F(RecordedEndTest, UntilAStep) {
  const RunOutcome shorter = until_step(run, 3);
  for (const RankRecords& records : shorter.ranks) {
    EXPECT_FALSE(records.events.empty());
    for (const Event& event : records.events) EXPECT_LE(event.step, 3);
  }
}

}  // namespace

}  // namespace lockstep
