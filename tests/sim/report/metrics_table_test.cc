#include "sim/report/metrics_table.h"

#include <gmock/gmock.h>

#include "tests/sim/judge/made_run.h"

namespace lockstep {
namespace {

RunResult judged(const MadeRun& run) {
  RunOutcome outcome = run.make();
  outcome.plan.scenario.communicator.options.set("algorithm", std::string("ring"));
  outcome.evidence.resize(outcome.ranks.size());
  return judge_run(outcome, {.metrics = true});
}

TEST(MetricsTable, HasARowForEachRankAndTheStraggler) {
  MadeRun run;
  run.world_size = 3;
  run.buckets = 1;
  run.transfer_ms = 12;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{1, rank == 1 && phase == Phase::backward ? 1200.0 : 0};
  };
  // The others end their steps 394.7 ms before rank 1 does, and begin the next as much earlier.
  EXPECT_EQ(metrics_table(judged(run), Style(false)),
            "rank  ready ms  arrival ms  wait ms  transfer ms  exposed ms  overlap  blame ms\n"
            "   0      24.3        24.3  1,194.7         12.0     1,200.0      1 %         -\n"
            "   1     824.3       824.3      0.0         12.0         0.0    100 %   1,194.7\n"
            "   2      24.3        24.3  1,194.7         12.0     1,200.0      1 %         -\n"
            "means of 19 steps; a step takes 1,232.0 ms, 432.0 if all ranks were alike: slowdown "
            "2.85\n"
            "rank 1 is late: compute in backward, 1194.7 ms per step (38.50x) in 19 of 19 steps; "
            "without it a step would take 37.3 ms instead of 1232.0\n");
}

TEST(MetricsTable, SaysWhatItCannotSay) {
  MadeRun run;
  run.steps = 1;
  EXPECT_EQ(metrics_table(judged(run), Style(false)),
            "no step to measure: the first one warms up\n");
  EXPECT_EQ(metrics_table(RunResult{}, Style(false)), "");
  run.steps = 6;
  RunOutcome outcome = run.make();
  outcome.plan.scenario.communicator.options.set("algorithm", std::string("ring"));
  outcome.ranks[2].events.pop_back();
  outcome.ranks[1].clock_uncertainty_ns = 12'345;
  const std::string text = metrics_table(judge_run(outcome, {.metrics = true}), Style(false));
  EXPECT_THAT(text, testing::HasSubstr("means of 4 steps"));
  EXPECT_THAT(text, testing::HasSubstr("of 1 other step, as of step 6: rank 2 did not end it"));
  EXPECT_THAT(text, testing::HasSubstr("clocks of the hosts agree within 0.012 ms"));
}

}  // namespace
}  // namespace lockstep
