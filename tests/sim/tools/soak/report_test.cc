#include "sim/tools/soak/report.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

SoakReport report_of(int64_t undecided, std::vector<SoakFailure> failures,
                     const std::string& broken = "") {
  SoakSlice slice;
  slice.seed = 201;
  slice.seeds = 200;
  slice.counts = {200, undecided, std::move(failures)};
  slice.broken = broken;
  slice.duration_s = 36;
  slice.commit = "c1";
  slice.libtorch = "1.13.1";
  SoakReport report;
  report.slices = {slice};
  report.judged = report.slices;
  return report;
}

TEST(SoakReport, PassesWhereEveryRunShowedWhatItHadTo) {
  const SoakReport report = report_of(0, {});
  EXPECT_EQ(exit_code_of(report), 0);
  EXPECT_EQ(soak_answer(report), "pass: 200 runs in 0.010 h, 0 failures, 0 undecided");
}

TEST(SoakReport, FailsWithTheScenarioAndTheCommand) {
  const SoakReport report =
      report_of(1, {{"mutant-207", "lockstep campaign --mutants 1 --seed 207"}});
  EXPECT_EQ(exit_code_of(report), 1);
  EXPECT_THAT(soak_text(report, Style(false)),
              HasSubstr("mutants mutant-207 (c1): lockstep campaign --mutants 1 --seed 207"));
  EXPECT_THAT(soak_markdown(report), HasSubstr("## Failures"));
}

TEST(SoakReport, IsInconclusiveWhereSomethingIsNotKnown) {
  EXPECT_EQ(exit_code_of(report_of(1, {})), 3);
  EXPECT_EQ(exit_code_of(report_of(0, {}, "left no result")), 3);
  EXPECT_EQ(exit_code_of(SoakReport()), 3);
  SoakReport stopped = report_of(0, {});
  stopped.stopped = "3 slices in a row broke down";
  EXPECT_EQ(exit_code_of(stopped), 3);
}

TEST(SoakReport, OfAnInterruptionIsItsSignal) {
  SoakReport report = report_of(0, {});
  report.signal = 2;
  EXPECT_EQ(exit_code_of(report), 130);
}

TEST(SoakReport, AnEarlierFailureIsShownAndNotJudged) {
  SoakReport report = report_of(0, {{"clean-1", "again"}});
  report.judged = report_of(0, {}).judged;
  EXPECT_EQ(exit_code_of(report), 0);
  EXPECT_THAT(soak_text(report, Style(false)), HasSubstr("clean-1"));
}

TEST(SoakReport, FitsItsSchema) {
  for (const SoakReport& report :
       {report_of(0, {}), report_of(2, {{"a", "b"}}), report_of(0, {}, "came to nothing")})
    EXPECT_EQ(schema_errors(soak_schema_text(), nlohmann::json::parse(as_json(report).dump())), "");
}

}  // namespace
}  // namespace lockstep
