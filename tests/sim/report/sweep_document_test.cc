#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "scenarios/parse/suite.h"
#include "sim/report/sweep_document.h"
#include "tests/sim/report/schema_errors.h"
#include "tests/sim/sweep/made_sweep.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

SweepDocument sample_sweep(int64_t rounds = 8) {
  MadeSweep sweep;
  sweep.add(2, "bucketed", 4, 98.3, 0.1, 5);
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  sweep.add(2, "flat", std::nullopt, 120, 100, 50);
  sweep.cells[1].same_caps_mb = {30};
  SweepDocument document;
  document.scenario = "s";
  document.file = "s.json";
  document.steps = 20;
  document.warmup = 5;
  document.rounds = rounds;
  document.runs = 3 * rounds;
  document.lines = sweep.results(rounds);
  document.caps = cap_contrasts(document.lines, 1);
  document.reducers = reducer_contrasts(document.lines, 1);
  document.predictions = {{"world_size=2 reducer=bucketed", 4, 98}};
  document.watch = machine_verdict(std::vector<Spins>(24, {4, 4}), 4, 0);
  return document;
}

bool fits_sweep_schema(const SweepDocument& document) {
  return schema_errors(sweep_schema_text(), json::parse(as_json(document).dump())).empty();
}

TEST(SweepDocument, TextHasALineForEachCombinationAndTheAnswerLast) {
  SweepDocument document = sample_sweep();
  conclude(&document);
  EXPECT_EQ(document.exit_code, 0);
  const std::string text = sweep_text(document, Style(false));
  EXPECT_THAT(text, HasSubstr("recommended: bucket_cap_mb 4: 1.7 % faster than 25 MiB"));
  EXPECT_THAT(text, HasSubstr("25=30"));
  EXPECT_THAT(text, EndsWith("pass: 24 runs of 3 combinations, wrong: 0\n"));
  EXPECT_THAT(sweep_markdown(document), HasSubstr("| 2 | bucketed | 4 | 3 | 0.10 | 98.3 |"));
  EXPECT_THAT(sweep_csv(document), HasSubstr("bucket_cap_mb=4,2,bucketed,4,8,98.3,98.3,98.3,"));
  EXPECT_TRUE(fits_sweep_schema(document));
}

TEST(SweepDocument, OneRoundHasNoInterval) {
  SweepDocument document = sample_sweep(1);
  conclude(&document);
  const auto swept = as_json(document)["sweep"];
  EXPECT_TRUE(swept["combinations"][0]["step_ms"]["low"].is_null());
  EXPECT_EQ(swept["combinations"][0]["step_ms"]["median"], 98.3);
  EXPECT_TRUE(swept["recommendations"][0]["ratio"]["high"].is_null());
  EXPECT_THAT(sweep_csv(document), HasSubstr("bucket_cap_mb=4,2,bucketed,4,1,98.3,,,"));
  EXPECT_TRUE(fits_sweep_schema(document));
}

TEST(SweepDocument, PredictionsStandBesideWhatWasMeasured) {
  SweepDocument document = sample_sweep();
  document.simulated = {"world_size=2 reducer=bucketed bucket_cap_mb=25", {99.283, 100.5, {}}};
  conclude(&document);
  const PredictionError error = prediction_error(document);
  EXPECT_EQ(error.lines, 1);  // the line that it comes from does not count
  EXPECT_NEAR(error.mean, 0.01, 1e-9);
  const std::string text = sweep_text(document, Style(false));
  EXPECT_THAT(text, HasSubstr("predicted ms  error %"));
  EXPECT_THAT(text, HasSubstr("99.3     +1.0"));
  EXPECT_THAT(text, HasSubstr("predicted: step times in virtual time, on a machine fitted to "
                              "world_size=2 reducer=bucketed bucket_cap_mb=25; 1 other off by 1.0 "
                              "% on average, 1.0 % at most\n"));
  const auto swept = as_json(document)["sweep"];
  EXPECT_EQ(swept["combinations"][0]["predicted_ms"], 99.283);
  EXPECT_EQ(swept["combinations"][2]["predicted_ms"], nullptr);
  EXPECT_EQ(swept["simulated"]["compared"], 1);
  EXPECT_TRUE(fits_sweep_schema(document));
}

TEST(SweepDocument, WhatIsNotPredictedIsToldWithItsReason) {
  SweepDocument document = sample_sweep();
  document.simulated = {"world_size=2 reducer=bucketed bucket_cap_mb=25",
                        {99.283, 100.5, {}},
                        {"", "", "virtual time has no join"}};
  conclude(&document);
  const std::string why = ": virtual time has no join\n";
  EXPECT_THAT(sweep_text(document, Style(false)),
              HasSubstr("\nnot predicted: " + label_of(document.lines[2].cell) + why));
  EXPECT_EQ(as_json(document)["sweep"]["combinations"][0]["not_predicted"], nullptr);
  EXPECT_EQ(as_json(document)["sweep"]["combinations"][2]["not_predicted"],
            "virtual time has no join");
  EXPECT_TRUE(fits_sweep_schema(document));
  document.simulated.reset();
  document.not_simulated = "virtual time has no join";
  EXPECT_THAT(
      sweep_text(document, Style(false)),
      HasSubstr("not predicted: " + label_of(document.lines[0].cell) + " and 2 others" + why));
  EXPECT_EQ(as_json(document)["sweep"]["combinations"][0]["not_predicted"],
            "virtual time has no join");
  EXPECT_TRUE(fits_sweep_schema(document));
}

TEST(SweepDocument, WrongReplicasAndBrokenBoundsFailABusyMachineDecidesNothing) {
  SweepDocument document = sample_sweep();
  document.thresholds.emplace_back(Threshold{"step_ms", "<=", 1}, Judgement{Verdict::fail, {"x"}});
  conclude(&document);
  EXPECT_EQ(document.exit_code, 1);
  document.watch.verdict = "busy";
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  document.allow_busy = true;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 1);
  document.allow_busy = false;
  document.lines[0].wrong = 1;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 1);
  document.signal = 2;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 130);
  EXPECT_TRUE(fits_sweep_schema(document));
}

}  // namespace

}  // namespace lockstep
