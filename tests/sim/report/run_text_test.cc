#include <gmock/gmock.h>

#include "sim/report/run_text.h"
#include "sim/report/terminal.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult diverged(Lane lane) {
  RunResult run;
  run.name = "mlp";
  run.verdict = Verdict::fail;
  Divergence d;
  d.lane = lane;
  d.step = 1;
  d.state_kind = StateKind::parameter;
  d.tensor = "bias";
  d.run_value = -1.5;
  d.golden_value = 1.5;
  d.ulp = d.max_ulp = 3;
  d.differing = d.numel = 1;
  d.cause = "unknown";
  run.first_divergence = d;
  return run;
}

std::string text_of(const RunResult& run) { return failure_text(run, Style(false)); }

TEST(FailureText, ReplicasAreComparedWithRankZeroNotWithAGoldenRun) {
  EXPECT_THAT(text_of(diverged(Lane::replica)), HasSubstr("      rank 0  1.5"));
  EXPECT_THAT(text_of(diverged(Lane::replica)), Not(HasSubstr("golden")));
  EXPECT_THAT(text_of(diverged(Lane::replay)), HasSubstr("      golden  1.5"));
}

TEST(FailureText, AKeptRunsOwnWordsAreAQuotation) {
  RunResult run = diverged(Lane::replay);
  run.again = "lockstep analyze run";
  EXPECT_THAT(text_of(run), Not(HasSubstr("it says")));
  run.told_command = "lockstep verify a\"b;\n::error::x\x1b[2J";
  EXPECT_THAT(text_of(run), HasSubstr("  again  lockstep analyze run\n  it says that it was run "
                                      "with: \"lockstep verify a\\\"b; ::error::x [2J\"\n"));
}

TEST(FailureText, DistancesBeyondWhatIsSignedAreNotNegative) {
  RunResult run = diverged(Lane::replay);
  run.first_divergence->ulp = uint64_t{1} << 63;  // doubles of two signs
  EXPECT_THAT(text_of(run), HasSubstr("9.2e+18 ulp"));
  run.first_divergence->ulp = UINT64_MAX;
  EXPECT_THAT(text_of(run), HasSubstr("not finite"));
}

TEST(FailureText, ABreakdownTellsWhoWhereAndItsLog) {
  RunResult run;
  run.name = "mlp";
  run.verdict = Verdict::inconclusive;
  Failure f;
  f.rank = 2;
  f.kind = "crash";
  f.message = "rank 2 was killed by SIGKILL (9) in backward of step 3";
  f.last_event = "bucket 0 ready";
  f.stack = {"pause+0x10", "lockstep::TrainingRun::step(long)+0x5f"};
  f.log_tail = {"first", "last"};
  f.secondary = {0, 1};
  run.failure = f;
  EXPECT_THAT(text_of(run),
              HasSubstr("  failure  crash: rank 2 was killed by SIGKILL (9) in backward of step 3\n"
                        "  last event  bucket 0 ready\n"
                        "  as a result  ranks 0 1 failed as well\n"
                        "  its stack then\n"
                        "      pause+0x10\n"
                        "      lockstep::TrainingRun::step(long)+0x5f\n"
                        "  last lines of its log\n      first\n      last\n"));
}

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
  EXPECT_EQ(
      metrics_table(judged(run), Style(false)),
      "rank  ready ms  arrival ms  wait ms  transfer ms  exposed ms  overlap  blame ms\n"
      "   0      24.3        24.3  1,194.7         12.0     1,200.0      1 %         -\n"
      "   1     824.3       824.3      0.0         12.0         0.0    100 %   1,194.7\n"
      "   2      24.3        24.3  1,194.7         12.0     1,200.0      1 %         -\n"
      "means of 19 steps; a step takes 1,232.0 ms, 432.0 if all ranks were equally fast: slowdown "
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

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShipped = LOCKSTEP_SOURCE_DIR "/golden/data/cifar10_losses.json";

RunResult with_losses() {
  RunResult run;
  run.name = "cifar";
  run.verdict = Verdict::pass;
  run.met = true;
  run.losses = {{1, 1, 2.3041, 2.2841}, {1, 201, 2.2961, 2.2441}, {2, 3126, 1.5, 1.25}};
  return run;
}

TEST(Published, StandBesideTheRunsOwn) {
  RunResult run = with_losses();
  run.published_losses = kShipped;
  EXPECT_THAT(losses_text(run), HasSubstr("published: one device"));
  EXPECT_THAT(losses_text(run), HasSubstr("1     1              2.304             2.284"));
  EXPECT_THAT(losses_text(run), HasSubstr("2.320"));  // one device, epoch 1, step 1
  EXPECT_THAT(losses_text(run), HasSubstr("2.244"));  // DDP, epoch 1, step 201
  EXPECT_THAT(losses_text(run), HasSubstr("1.158"));  // DDP, epoch 2, step 1: the run's 3126
}

TEST(Published, AreShownWithoutBeingAskedFor) {
  ResultDocument document;
  document.runs = {with_losses()};
  EXPECT_THAT(terminal_text(document, {}), Not(HasSubstr("loss of the batch")));
  EXPECT_THAT(terminal_text(document, {.verbose = true}), HasSubstr("loss of the batch"));
  document.runs[0].published_losses = kShipped;
  EXPECT_THAT(terminal_text(document, {}), HasSubstr("published: DDP, rank 0"));
}

TEST(Published, AnotherFileIsBadInput) {
  const TemporaryFolder folder;
  EXPECT_TRUE(load_published_losses(kShipped));
  EXPECT_FALSE(load_published_losses(folder.path() + "/none.json"));
  EXPECT_FALSE(load_published_losses(folder.write("a.json", "{")));
  EXPECT_FALSE(load_published_losses(folder.write("b.json", R"({"columns": [{"of": 3}]})")));
}

}  // namespace

}  // namespace lockstep
