#include <gmock/gmock.h>

#include <random>

#include "sim/analysis/timeline.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

std::vector<std::pair<int64_t, int64_t>> pairs(const std::vector<Interval>& intervals) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const Interval& i : intervals) all.emplace_back(i.begin_ns, i.end_ns);
  return all;
}

TEST(Intervals, MergesWhatTouchesOrOverlaps) {
  EXPECT_THAT(pairs(merged({{5, 7}, {0, 3}, {2, 4}, {4, 5}, {9, 9}, {20, 10}})),
              testing::ElementsAre(std::pair(0, 7)));
  EXPECT_EQ(length_ns(merged({{0, 3}, {10, 11}})), 4);
  EXPECT_TRUE(merged({}).empty());
}

TEST(Intervals, IntersectsLikeSetsOfInstants) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Interval> lists[2];
    std::vector<bool> at[2] = {std::vector<bool>(40), std::vector<bool>(40)};
    for (int which = 0; which < 2; ++which)
      for (int i = 0; i < 5; ++i) {
        const auto begin = static_cast<int64_t>(random() % 40);
        const auto end = std::min<int64_t>(40, begin + static_cast<int64_t>(random() % 9));
        lists[which].push_back({begin, end});
        for (int64_t t = begin; t < end; ++t) at[which][static_cast<size_t>(t)] = true;
      }
    int64_t both = 0, one = 0;
    for (size_t t = 0; t < 40; ++t) {
      both += at[0][t] && at[1][t];
      one += at[0][t];
    }
    const auto a = merged(lists[0]), b = merged(lists[1]);
    EXPECT_EQ(length_ns(a), one);
    EXPECT_EQ(length_ns(intersection(a, b)), both);
    EXPECT_EQ(pairs(intersection(a, b)), pairs(intersection(b, a)));
  }
}

using testing::HasSubstr;

Event* find(RankRecords* records, EventKind kind, int64_t step, uint32_t sequence = 0) {
  for (Event& event : records->events)
    if (static_cast<EventKind>(event.kind) == kind && event.step == step &&
        (sequence == 0 || event.sequence == sequence))
      return &event;
  return nullptr;
}

MadeRun small() {
  MadeRun run;
  run.world_size = 3;
  run.steps = 4;
  run.buckets = 2;
  return run;
}

std::vector<int64_t> whole(const Timeline& timeline) {
  std::vector<int64_t> steps;
  for (const Step& step : timeline.steps) steps.push_back(step.step);
  return steps;
}

TEST(Timeline, HoldsPhasesAndCollectivesOfEveryStep) {
  const Timeline timeline = timeline_of(small().make());
  EXPECT_THAT(whole(timeline), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(timeline.left_out.empty());
  ASSERT_EQ(timeline.collectives.size(), 8u);
  const Step& step = timeline.steps[1];
  EXPECT_THAT(step.collectives, testing::ElementsAre(2u, 3u));
  ASSERT_EQ(step.ranks.size(), 3u);
  const std::vector<PhaseInterval>& phases = step.ranks[2].phases;
  ASSERT_EQ(phases.size(), 5u);
  EXPECT_EQ(phases[1].phase, Phase::forward);
  EXPECT_EQ(phases[1].time.length_ns(), 10'000'000);
  EXPECT_EQ(phases[4].time.end_ns, step.ranks[2].time.end_ns);
  const Collective& collective = timeline.collectives[3];
  EXPECT_EQ(collective.sequence, 4u);
  EXPECT_EQ(collective.bucket, 1);
  EXPECT_EQ(collective.bytes, 1'000'000);
  EXPECT_EQ(collective.step, 2);
  const Passage& passage = collective.ranks[1];
  EXPECT_EQ(*passage.arrival_ns - *passage.ready_ns, 1000);
  EXPECT_EQ(*passage.end_ns - *passage.arrival_ns, 2'000'000);
  EXPECT_FALSE(passage.launched_ns);
  EXPECT_EQ(timeline.origin_ns, 1'000'000'000);
}

// c10d::Reducer's wait for its buckets is in backward, as autograd calls it there.
TEST(Timeline, OfC10dBackwardEndsWhenTheLastBucketIsEntered) {
  RunOutcome outcome = small().make();
  const Timeline before = timeline_of(outcome);
  outcome.plan.scenario.reducer.kind = "c10d";
  const Timeline timeline = timeline_of(outcome);
  const std::vector<PhaseInterval>& phases = timeline.steps[1].ranks[2].phases;
  const int64_t entered =
      *timeline.collectives[timeline.steps[1].collectives[1]].ranks[2].arrival_ns;
  const auto backward = std::find_if(phases.begin(), phases.end(), [](const PhaseInterval& phase) {
    return phase.phase == Phase::backward;
  });
  ASSERT_NE(backward, phases.end());
  EXPECT_LE(backward->time.end_ns, entered + 1);
  EXPECT_EQ(timeline.steps[1].ranks[2].time.length_ns(), before.steps[1].ranks[2].time.length_ns());
  int64_t sum_ns = 0;
  for (const PhaseInterval& phase : phases) sum_ns += phase.time.length_ns();
  EXPECT_EQ(sum_ns, timeline.steps[1].ranks[2].time.length_ns()) << "nothing is lost";
}

TEST(Timeline, KnowsLaunches) {
  MadeRun run = small();
  run.launched = true;
  run.delay_ms = [](int64_t rank, int64_t) { return rank == 1 ? 4 : 0; };
  const Timeline timeline = timeline_of(run.make());
  const Passage& passage = timeline.collectives[0].ranks[1];
  EXPECT_EQ(*passage.launched_ns - *passage.arrival_ns, 4'000'000);
}

TEST(Timeline, LeavesOutStepsOfWhichEventsWereDropped) {
  RunOutcome outcome = small().make();
  RankRecords& records = outcome.ranks[1];
  std::erase_if(records.events, [](const Event& e) { return e.step == 1; });
  records.events.erase(records.events.begin());  // the begin of step 2
  records.dropped = 9;
  const Timeline timeline = timeline_of(outcome);
  EXPECT_THAT(whole(timeline), testing::ElementsAre(3, 4));
  ASSERT_EQ(timeline.left_out.size(), 2u);
  EXPECT_EQ(timeline.left_out[1].step, 2);
  EXPECT_THAT(timeline.left_out[1].why, HasSubstr("rank 1"));
  EXPECT_THAT(timeline.left_out[1].why, HasSubstr("dropped"));
  EXPECT_EQ(timeline.dropped, 9u);
}

TEST(Timeline, LeavesOutStepsThatNotAllEnded) {
  RunOutcome outcome = small().make();
  std::erase_if(outcome.ranks[2].events, [](const Event& e) {
    return e.step == 4 && static_cast<EventKind>(e.kind) == EventKind::step_end;
  });
  std::erase_if(outcome.ranks[0].events, [](const Event& e) {
    return e.sequence == 3 && static_cast<EventKind>(e.kind) == EventKind::end;
  });
  const Timeline timeline = timeline_of(outcome);
  EXPECT_THAT(whole(timeline), testing::ElementsAre(1, 3));
  EXPECT_EQ(timeline.left_out[0].why, "rank 0: no end of collective 3");
  EXPECT_EQ(timeline.left_out[1].why, "rank 2 did not end it");
}

TEST(Timeline, LeavesOutStepsWhoseCollectivesDiffer) {
  RunOutcome outcome = small().make();
  find(&outcome.ranks[2], EventKind::arrival, 3, 5)->value = pack_collective(1, 6, 4);
  const Timeline timeline = timeline_of(outcome);
  EXPECT_THAT(whole(timeline), testing::ElementsAre(1, 2, 4));
  EXPECT_EQ(timeline.left_out[0].why, "ranks called different collectives as 5");
}

TEST(Timeline, EndsWithThePrimaryRunAndWithTheStep) {
  MadeRun run = small();
  RunOutcome outcome = run.make();
  for (size_t rank = 0; rank < 3; ++rank) {
    RankRecords& records = outcome.ranks[rank];
    int64_t time = find(&records, EventKind::step_end, 4)->time_ns;
    const auto add = [&](EventKind kind, int32_t step, uint32_t sequence, Phase phase) {
      records.events.push_back({++time, sequence, static_cast<uint16_t>(kind),
                                static_cast<uint16_t>(phase), step, -1, 0});
    };
    add(EventKind::phase_begin, 4, 0, Phase::checkpoint);
    add(EventKind::arrival, 4, 9, Phase::checkpoint);
    add(EventKind::end, 4, 9, Phase::checkpoint);
    add(EventKind::double_run, 4, 0, Phase::checkpoint);
    add(EventKind::phase_begin, 1, 0, Phase::load);
    add(EventKind::arrival, 1, 10, Phase::load);
  }
  const Timeline timeline = timeline_of(outcome);
  EXPECT_THAT(whole(timeline), testing::ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(timeline.collectives.size(), 9u);
  EXPECT_EQ(timeline.collectives[8].step, 0);
  EXPECT_EQ(timeline.steps[3].ranks[0].phases.size(), 5u);
  EXPECT_EQ(timeline.phases[0].back().phase, Phase::checkpoint);
}

TEST(Timeline, OfNothingIsEmpty) {
  RunOutcome outcome;
  outcome.plan.scenario.world_size = 2;
  const Timeline timeline = timeline_of(outcome);
  EXPECT_TRUE(timeline.steps.empty());
  outcome.ranks.resize(2);
  EXPECT_TRUE(timeline_of(outcome).left_out.empty());
}

// A device had the gradients of step 2's buckets 5 and 9 ms after the host called.
RunOutcome with_device_times(RunOutcome outcome) {
  RankRecords& records = outcome.ranks[1];
  for (const int32_t bucket : {0, 1}) {
    const Event arrival = *find(&records, EventKind::arrival, 2, static_cast<uint32_t>(3 + bucket));
    Event ready = *find(&records, EventKind::step_end, 2);
    ready.time_ns -= 1;
    ready.kind = static_cast<uint16_t>(EventKind::device_ready);
    ready.subject = bucket;
    ready.value = static_cast<uint64_t>(arrival.time_ns + (bucket == 0 ? 500'000 : 900'000));
    ready.sequence = 7'000;
    records.events.push_back(ready);
  }
  return outcome;
}

TEST(Timeline, ARankComesWhenItsDeviceDoes) {
  const Timeline host = timeline_of(small().make());
  const Timeline device = timeline_of(with_device_times(small().make()));
  EXPECT_EQ(host.clock_uncertainty_ns, 0);
  EXPECT_EQ(device.clock_uncertainty_ns, 7'000);
  const size_t last = host.steps[1].collectives[1];
  const Passage& before = host.collectives[last].ranks[1];
  const Passage& after = device.collectives[last].ranks[1];
  EXPECT_EQ(*after.arrival_ns, *before.arrival_ns + 900'000);
  EXPECT_EQ(*after.ready_ns, *before.arrival_ns + 900'000);
  EXPECT_EQ(*after.end_ns, *before.end_ns);
  EXPECT_EQ(*device.collectives[last].ranks[0].arrival_ns,
            *host.collectives[last].ranks[0].arrival_ns);
  // Other steps' buckets of the same numbers stay where they were.
  EXPECT_EQ(*device.collectives[0].ranks[1].arrival_ns, *host.collectives[0].ranks[1].arrival_ns);
}

TEST(Timeline, BackwardLastsUntilTheDeviceHasTheLastBucket) {
  const Timeline device = timeline_of(with_device_times(small().make()));
  const Step& step = device.steps[1];
  const std::vector<PhaseInterval>& phases = step.ranks[1].phases;
  const int64_t ready = *device.collectives[step.collectives[1]].ranks[1].arrival_ns;
  EXPECT_EQ(phases[2].phase, Phase::backward);
  EXPECT_GE(phases[2].time.end_ns, ready);
  EXPECT_EQ(phases[3].time.begin_ns, phases[2].time.end_ns);
}

TEST(Timeline, NoDeviceIsReadyAfterTheResult) {
  RunOutcome outcome = with_device_times(small().make());
  for (Event& event : outcome.ranks[1].events)
    if (event.kind == static_cast<uint16_t>(EventKind::device_ready)) event.value += 1'000'000'000;
  const Timeline device = timeline_of(outcome);
  for (const size_t place : device.steps[1].collectives) {
    const Passage& passage = device.collectives[place].ranks[1];
    EXPECT_EQ(*passage.arrival_ns, *passage.end_ns);
  }
}

}  // namespace

}  // namespace lockstep
