#include <gmock/gmock.h>

#include "sim/report/terminal.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult diverged(const std::string& lane) {
  RunResult run;
  run.name = "mlp";
  run.verdict = "fail";
  Divergence d;
  d.lane = lane;
  d.step = 1;
  d.state_kind = "parameter";
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
  EXPECT_THAT(text_of(diverged("replica")), HasSubstr("      rank 0  1.5"));
  EXPECT_THAT(text_of(diverged("replica")), Not(HasSubstr("golden")));
  EXPECT_THAT(text_of(diverged("replay")), HasSubstr("      golden  1.5"));
}

TEST(FailureText, AKeptRunsOwnWordsAreAQuotation) {
  RunResult run = diverged("replay");
  run.again = "lockstep analyze run";
  EXPECT_THAT(text_of(run), Not(HasSubstr("it says")));
  run.told_command = "lockstep verify a\"b;\n::error::x\x1b[2J";
  EXPECT_THAT(text_of(run), HasSubstr("  again  lockstep analyze run\n  it says that it was run "
                                      "with: \"lockstep verify a\\\"b; ::error::x [2J\"\n"));
}

TEST(FailureText, DistancesBeyondWhatIsSignedAreNotNegative) {
  RunResult run = diverged("replay");
  run.first_divergence->ulp = uint64_t{1} << 63;  // doubles of two signs
  EXPECT_THAT(text_of(run), HasSubstr("9.2e+18 ulp"));
  run.first_divergence->ulp = UINT64_MAX;
  EXPECT_THAT(text_of(run), HasSubstr("not finite"));
}

TEST(FailureText, ABreakdownTellsWhoWhereAndItsLog) {
  RunResult run;
  run.name = "mlp";
  run.verdict = "inconclusive";
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
                        "  because of it  ranks 0 1 failed as well\n"
                        "  its stack then\n"
                        "      pause+0x10\n"
                        "      lockstep::TrainingRun::step(long)+0x5f\n"
                        "  last lines of its log\n      first\n      last\n"));
}

}  // namespace
}  // namespace lockstep
