#include "sim/tools/program/sweep_prediction.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/tools/program/made_traces.h"

namespace lockstep {
namespace {

// What was measured is `share` of what the traced runs were made to take, at the last cap.
ProgramPrediction prediction_of(const std::vector<double>& caps, double share) {
  const MadeProgram made = {};
  std::vector<CellResult> lines;
  std::vector<TracedProgram> runs;
  for (const double cap : caps) {
    CellResult& line = lines.emplace_back();
    line.cell.cap_mb = cap;
    line.step_ms.value = made.step_ms(cap) * (cap == caps.back() ? share : 1);
    runs.push_back(made.run_at(cap));
  }
  const TemporaryFolder folder;
  ProgramPrediction prediction = predict_caps(lines, runs, {"train"}, folder.path(), 2);
  return prediction;
}

TEST(ProgramPrediction, CapsBetweenAreEvenlySpread) {
  EXPECT_EQ(caps_between({1, 100}), (std::vector<double>{3.2, 10, 32}));
  EXPECT_EQ(caps_between({1, 5, 25}), (std::vector<double>{1.5, 2.2, 3.3, 7.5, 11, 17}));
  EXPECT_EQ(caps_between({0.001, 0.1}).front(), 0.0032);
  EXPECT_TRUE(caps_between({7}).empty());
  EXPECT_TRUE(caps_between({1, 1.001}).empty());
}

TEST(ProgramPrediction, HoldsEachMeasuredCapOut) {
  const ProgramPrediction prediction = prediction_of({0.25, 1, 2}, 1);
  ASSERT_EQ(prediction.why, "");
  EXPECT_EQ(why_undecided(prediction), "");
  EXPECT_LT(prediction.largest_off, 0.03);
  EXPECT_EQ(prediction.measured()->cap_mb, 0.25);
  EXPECT_EQ(prediction.first_bucket_bytes, bytes_of_mib(0.25));
  ASSERT_NE(prediction.unmeasured(), nullptr);
  EXPECT_FALSE(prediction.unmeasured()->measured_ms);
  for (size_t i = 1; i < prediction.caps.size(); ++i)
    EXPECT_LT(prediction.caps[i - 1].cap_mb, prediction.caps[i].cap_mb);
  EXPECT_NEAR(prediction.tracing, 0, 1e-9);
}

// Few large buckets end late, many small ones pay for each: the best lies between.
TEST(ProgramPrediction, SaysThatTheBestWasOnlyPredicted) {
  ProgramPrediction prediction;
  prediction.caps = {{1, 9, 20, 20.2}, {5, 4, 12, std::nullopt}, {25, 2, 18, 18.1}};
  prediction.largest_off = 0.01;
  const std::string answer = answer_of(prediction);
  EXPECT_NE(answer.find("bucket_cap_mb 5 would take 12.00 ms"), std::string::npos) << answer;
  EXPECT_NE(answer.find("only predicted: measure it with --caps 5,25"), std::string::npos);
  prediction.caps[1].step_ms = 18;
  EXPECT_NE(answer_of(prediction).find("no predicted cap beats 25 MiB"), std::string::npos);
}

TEST(ProgramPrediction, ThatIsOffSaysNothing) {
  const ProgramPrediction prediction = prediction_of({0.25, 1, 2}, 0.5);
  EXPECT_EQ(prediction.why, "");
  EXPECT_NEAR(prediction.largest_off, 1, 0.05);
  EXPECT_EQ(prediction.largest_off_mb, 2);
  EXPECT_NE(answer_of(prediction).find("inconclusive: predictions are off by"), std::string::npos);
}

TEST(ProgramPrediction, OfOneCapIsNone) {
  EXPECT_NE(prediction_of({1}, 1).why.find("the same buckets"), std::string::npos);
  EXPECT_NE(answer_of(prediction_of({1}, 1)).find("inconclusive"), std::string::npos);
}

TEST(ProgramPrediction, OfOtherBucketsThanThoseOfTheRunsIsNone) {
  const MadeProgram made = {};
  std::vector<CellResult> lines(2);
  std::vector<TracedProgram> runs;
  for (const double cap : {0.25, 1.0}) {
    CellResult& line = lines[runs.size()];
    line.cell.cap_mb = cap;
    line.step_ms.value = 10;
    runs.push_back(made.run_at(cap));
    runs.back().ranks[0].bucket_bytes.push_back(4);
  }
  const TemporaryFolder folder;
  const auto prediction = predict_caps(lines, runs, {"train"}, folder.path(), 2);
  EXPECT_NE(prediction.why.find("not those that are simulated"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
