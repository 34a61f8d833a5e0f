#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/report/terminal.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult passed(const std::string& name, int64_t world_size) {
  RunResult run;
  run.name = name;
  run.file = name + ".json";
  run.world_size = world_size;
  run.seed = 123;
  run.verdict = Verdict::pass;
  run.met = true;
  run.outcome = RunEnding::completed;
  run.duration_ms = 420;
  run.lanes = {{Lane::replica, LaneVerdict::pass, ControlVerdict::detected, "", 32, {}, {}},
               {Lane::float64, LaneVerdict::pass, ControlVerdict::detected, "", 16, 3.1e-16, {}}};
  return run;
}

RunResult failed() {
  RunResult run = passed("mlp", 3);
  run.label = "world_size=3 reducer=bucketed";
  run.verdict = Verdict::fail;
  run.met = false;
  run.unmet = {"verdict: expected pass, got fail"};
  run.lanes[0] = {
      Lane::replay, LaneVerdict::fail, ControlVerdict::detected, "ranks 0 1 2 differ", 10, {}, {}};
  Divergence d;
  d.lane = Lane::replay;
  d.step = 2;
  d.state_kind = StateKind::gradient;
  d.tensor = "fc2.weight";
  d.bucket = 1;
  d.element = {17, 4};
  d.run_value = 0.012345678;
  d.golden_value = 0.012345679;
  d.run_bits = "0x3c4a9d1f";
  d.golden_bits = "0x3c4a9d20";
  d.ulp = 1;
  d.max_ulp = 4;
  d.differing = 3811;
  d.numel = 65536;
  d.ranks = {0, 1, 2};
  d.cause = "order_only";
  d.explanation = "the same addends in another order (lane float64 passes)";
  run.first_divergence = d;
  run.again = "lockstep verify mlp.json --set /world_size=3 --seed 123";
  run.run_dir = "/runs/0042/0001";
  return run;
}

ResultDocument document(std::vector<RunResult> runs, int exit_code) {
  ResultDocument document;
  document.seed = 123;
  document.machine.cores = 2;
  document.libraries = {"1.13.1", "0.5.0", "OpenBLAS 0.3.21", "AVX512", "SkylakeX"};
  document.exit_code = exit_code;
  document.runs = std::move(runs);
  return document;
}

TEST(Terminal, TableAndAnswerOfAPass) {
  const std::string text =
      terminal_text(document({passed("mlp", 2), passed("mlp", 3), passed("toy_model", 4)}, 0), {});
  EXPECT_THAT(text, HasSubstr("LibTorch 1.13.1  Gloo 0.5.0  OpenBLAS 0.3.21 SkylakeX  2 cores  "
                              "seed 123\n"));
  EXPECT_THAT(
      text,
      HasSubstr("scenario   runs  world sizes  lanes            controls  verdict  time/s\n"
                "mlp           2  2 3          replica float64    4 of 4  pass        0.8\n"
                "toy_model     1  4            replica float64    2 of 2  pass        0.4\n"));
  EXPECT_THAT(
      text,
      ::testing::EndsWith(
          "\n\npass: 3 runs, 96 tensors compared bit for bit, 0 differ; worst float64 distance "
          "3.1e-16 (bound 1e-12)\n"));
}

TEST(Terminal, OneSeedIsNamedOnlyIfAllRunsHaveIt) {
  RunResult other = passed("other", 2);
  other.seed = 1234;
  const ResultDocument both = document({passed("toy", 4), other}, 0);
  EXPECT_THAT(head_line(both), ::testing::EndsWith("seeds of the files\n"));
  EXPECT_THAT(head_line(document({passed("toy", 4)}, 0)), ::testing::EndsWith("seed 123\n"));
}

TEST(Terminal, AFailureInFull) {
  EXPECT_EQ(
      failure_text(failed(), Style(false)),
      "fail  mlp  world_size=3 reducer=bucketed  lane replay\n"
      "  unmet  verdict: expected pass, got fail\n"
      "  first difference  step 2, gradient of fc2.weight, bucket 1, element [17, 4], seen on "
      "ranks 0 1 2\n"
      "      run     0.012345678  0x3c4a9d1f\n"
      "      golden  0.012345679  0x3c4a9d20      1 ulp; 3,811 of 65,536 elements differ, at "
      "most 4 ulp\n"
      "  lane replay  fail: ranks 0 1 2 differ\n"
      "  cause  order_only: the same addends in another order (lane float64 passes)\n"
      "  again  lockstep verify mlp.json --set /world_size=3 --seed 123\n"
      "  evidence  /runs/0042/0001\n");
}

TEST(Terminal, AnswerIsTheLastLine) {
  EXPECT_EQ(answer_line(document({passed("a", 2), failed()}, 1)), "fail: 1 of 2 runs; exit 1\n");
  RunResult undecided = passed("a", 2);
  undecided.verdict = Verdict::inconclusive;
  undecided.met = std::nullopt;
  EXPECT_EQ(answer_line(document({undecided, passed("b", 2)}, 3)),
            "inconclusive: 1 of 2 runs; exit 3\n");
  RunResult expected = failed();
  expected.met = true;
  EXPECT_EQ(answer_line(document({expected, expected}, 0)), "pass: 2 runs as expected (2 fail)\n");
  EXPECT_EQ(answer_line(document({passed("a", 2)}, 130)),
            "interrupted by signal 2: 1 run known so far, 1 as expected; exit 130\n");
}

TEST(Terminal, QuietPrintsTheLastLineOnlyAndColorMeansVerdict) {
  TerminalOptions options;
  options.quiet = true;
  EXPECT_EQ(terminal_text(document({failed()}, 1), options), "fail: 1 of 1 run; exit 1\n");
  options.style = Style(true);
  EXPECT_EQ(terminal_text(document({failed()}, 1), options),
            "\033[31mfail\033[0m: 1 of 1 run; exit 1\n");
}

TEST(Terminal, ManyFailuresAreNotAllPrinted) {
  const std::vector<RunResult> runs(7, failed());
  EXPECT_THAT(terminal_text(document(runs, 1), {}), HasSubstr("and 2 more such runs"));
  TerminalOptions verbose;
  verbose.verbose = true;
  EXPECT_THAT(terminal_text(document(runs, 1), verbose), Not(HasSubstr("more runs")));
}

TEST(Terminal, StoredGolden) {
  RunResult run = passed("linear", 4);
  run.golden = R"({"verdict":"pass","decimals":4,"total":110,"run_equal":110,
      "published":[{"of":"one_device","equal":88,"total":88},{"of":"run","equal":71,"total":71}],
      "differing_from_one_device":[{"name":"weight","differing":42,"total":100}]})";
  EXPECT_THAT(
      terminal_text(document({run}, 0), {}),
      HasSubstr(
          "stored golden  pass: 110 of 110 weights are printed identically with 4 decimals, 88 of "
          "88 published of one device, 71 of 71 published of DDP\n  against one "
          "device in float32, in the last bits: 42 of 100 of weight differ\n"));
  run.golden = R"({"verdict":"not_applicable","reason":"it was made with other settings"})";
  EXPECT_THAT(terminal_text(document({run}, 0), {}),
              HasSubstr("stored golden  not_applicable: it was made with other settings\n"));
}

TEST(Style, Numbers) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1004311), "1,004,311");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(scientific(3.14e-16), "3.1e-16");
}

RunResult ended(const std::string& name, bool met) {
  RunResult result;
  result.name = name;
  result.met = met;
  return result;
}

TEST(Progress, CountsTheGroupAndTheCostOfAll) {
  Progress progress({{"processes", {2, 30}}, {"threads", {40, 1}}}, false, true);
  EXPECT_EQ(progress.line("processes", std::chrono::seconds(0)), "processes 0/2  0 %  0 failed");
  progress.done(ended("processes", true));
  EXPECT_EQ(progress.line("processes", std::chrono::seconds(3)),
            "processes 1/2  30 %  7 s left  0 failed");
  progress.done(ended("processes", false));
  for (int i = 0; i < 40; ++i) progress.done(ended("threads", true));
  EXPECT_EQ(progress.line("threads", std::chrono::seconds(9)),
            "threads 40/40  100 %  0 s left  1 failed");
}

TEST(Progress, ANameThatWasNotAnnouncedDoesNoHarm) {
  Progress progress({}, false, true);
  progress.done(ended("other", true));
  EXPECT_EQ(progress.line("other", std::chrono::seconds(1)), "other 1/0  100 %  0 failed");
}

}  // namespace

}  // namespace lockstep
