#include "sim/calibrate/traced_runs.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/scenarios/profiler/made_training.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<TracedRank> traced(const std::vector<MadeTraining>& made) {
  std::vector<TracedRank> ranks;
  for (const MadeTraining& one : made) {
    KinetoTrace trace = kineto_trace_of(one.text(), "trace.json").value();
    KinetoTraining training = training_of(trace).value();
    ranks.push_back({std::move(trace), std::move(training)});
  }
  return ranks;
}

// Whose clocks begin a second apart.
std::vector<MadeTraining> two_ranks() {
  std::vector<MadeTraining> made(2);
  made[1].rank = 1;
  return made;
}

std::string refusal(const std::vector<MadeTraining>& made) {
  const auto run = traced_run(traced(made));
  return run ? "" : run.errors()[0].message;
}

TEST(TracedRuns, TellWhatAStepTakesBesideItsLayers) {
  const auto run = traced_run(traced(two_ranks()));
  ASSERT_TRUE(run) << run.errors()[0].message;
  MachineModel machine;
  MaybeFitted bucket_us;
  fill_steps(run.value(), &machine, &bucket_us);
  EXPECT_EQ(machine.load_ns, 1'000'000);
  EXPECT_EQ(machine.optimizer_ns, 2'000'000);
  EXPECT_EQ(machine.bucket_ns, 100'000);
  EXPECT_EQ(machine.launch_ns, 50'000) << "beyond what launching costs backward";
  EXPECT_NEAR(bucket_us.number->value, 100, 1e-6);
}

TEST(TracedRuns, ACollectiveBeginsWithTheLastRank) {
  std::vector<MadeTraining> made = two_ranks();
  for (MadeTraining& one : made) one.steps = 1;
  const auto alike = traced_run(traced(made));
  ASSERT_TRUE(alike) << alike.errors()[0].message;
  const auto& collectives = alike.value().samples.collectives;
  ASSERT_EQ(collectives.size(), 2U);
  EXPECT_EQ(collectives[0].ranks, 2);
  EXPECT_EQ(collectives[0].bytes, (8 + 8 * 64) * 4);
  EXPECT_EQ(collectives[1].bytes, 64 * 64 * 4);
  EXPECT_NEAR(collectives[0].ns, 3e6, 1);
  made[1].late_ms = 1;  // begins later by 1 ms, ends later by 1 ms
  const auto apart = traced_run(traced(made));
  EXPECT_NEAR(apart.value().samples.collectives[0].ns, 3e6, 1) << "waiting is not the wire's";
}

TEST(TracedRuns, ClocksAreThoseSince1970) {
  std::vector<MadeTraining> made = two_ranks();
  made[1].base_s += 30;
  EXPECT_THAT(refusal(made), HasSubstr("ended on a rank before another came to it"));
}

TEST(TracedRuns, OfOtherTrainingsAreRefused) {
  std::vector<MadeTraining> made = two_ranks();
  made[1].shapes[0] = {9};
  EXPECT_THAT(refusal(made), HasSubstr("are not those of another"));
  made = two_ranks();
  made[1].rank = 0;
  EXPECT_THAT(refusal(made), HasSubstr("rank 0 has several traces"));
  made = two_ranks();
  made[1].steps = 2;
  EXPECT_THAT(refusal(made), HasSubstr("holds 3 whole steps, another 2"));
  made = two_ranks();
  made[0].with_steps = made[1].with_steps = false;
  EXPECT_THAT(refusal(made), HasSubstr("marks no step"));
}

// All-reduces of other sizes are no buckets.
TEST(TracedRuns, BucketsHaveTheBytesOfTheirGradients) {
  std::vector<MadeTraining> made = two_ranks();
  for (MadeTraining& one : made) one.bucket_ends = {1};
  EXPECT_THAT(refusal(made), HasSubstr("no step's collectives"));
}

TEST(TracedRuns, LinksNeedAllRanks) {
  std::vector<MadeTraining> made = two_ranks();
  EXPECT_EQ(why_no_links(traced(made)), "");
  made.pop_back();
  EXPECT_THAT(why_no_links(traced(made)), HasSubstr("1 of 2 ranks"));
  EXPECT_FALSE(fit_traces(traced(made), 2));
  EXPECT_TRUE(traced_run(traced(made))) << "beside --machine it tells the rest";
  made[0].world_size = 1;
  EXPECT_THAT(why_no_links(traced(made)), HasSubstr("one rank"));
}

TEST(TracedRuns, GiveAMachine) {
  std::vector<MadeTraining> made = two_ranks();
  const auto fit = fit_traces(traced(made), 2);
  ASSERT_TRUE(fit) << fit.errors()[0].message;
  EXPECT_EQ(fit.value().samples, 6);
  EXPECT_EQ(fit.value().machine.bucket_ns, 100'000);
  EXPECT_FALSE(fit.value().machine.backward_ms) << "that is the scenario's profile";
}

}  // namespace
}  // namespace lockstep
