#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/report/pipeline_document.h"
#include "sim/report/whatif_document.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;

bool fits_what_if_schema(const nlohmann::ordered_json& document) {
  return schema_errors(what_if_schema_text(), json::parse(document.dump())).empty();
}

StepTime time_of(double ms) { return {{ms, ms - 1, ms + 1}, ms, ms - 2}; }

WhatIfDocument sample_what_if() {
  Forecast forecast;
  forecast.steps = 19;
  forecast.ranks = 3;
  forecast.measured = time_of(40.2);
  forecast.replayed = time_of(40);
  forecast.predictions = {{{1}, time_of(32), time_of(8), {{"backward", 6.5}, {"forward", 1.5}}},
                          {{0}, time_of(40), time_of(0.1), {}}};
  WhatIfDocument document;
  document.runs = {{"/tmp/x/0001", "slow", "world_size=3", forecast}};
  return document;
}

TEST(WhatIfDocument, HasARowForEachPredictionAndTheAnswerLast) {
  const std::string text = whatif_text(sample_what_if(), Style(false));
  EXPECT_THAT(text, HasSubstr("slow  world_size=3  /tmp/x/0001\n"));
  EXPECT_THAT(text, HasSubstr("  32.0   31.0 .. 33.0        8.0     7.0 .. 9.0  20.0 %  backward "
                              "6.5, forward 1.5\n"));
  EXPECT_THAT(text, HasSubstr("measured: 40.2 ms a step (39.2 .. 41.2), the mean of 19 steps of 3 "
                              "ranks\n"));
  EXPECT_THAT(text, EndsWith("without the lateness of rank 1 a step would take 32.0 ms (31.0 .. "
                             "33.0) instead of 40.0: 20.0 % less, most of it in backward\n"));
  EXPECT_TRUE(fits_what_if_schema(as_json(sample_what_if())));
}

TEST(WhatIfDocument, SaysWhereThereIsNothingToGain) {
  WhatIfDocument document = sample_what_if();
  document.runs[0].forecast->predictions.erase(document.runs[0].forecast->predictions.begin());
  EXPECT_THAT(whatif_text(document, Style(false)),
              HasSubstr("nothing to gain: without the lateness of rank 0 a step would take 40.0"));
}

TEST(WhatIfDocument, SaysThatAReplayIsOff) {
  WhatIfDocument document = sample_what_if();
  document.runs[0].forecast->measured = time_of(50);
  EXPECT_THAT(whatif_text(document, Style(false)),
              HasSubstr("the replay of these steps takes 40.0 ms: predictions are no better"));
}

TEST(WhatIfDocument, OfARunWithoutSteps) {
  WhatIfDocument document = sample_what_if();
  document.exit_code = 3;
  document.runs[0].forecast.reset();
  EXPECT_THAT(whatif_text(document, Style(false)), EndsWith("after its first\n"));
  EXPECT_TRUE(fits_what_if_schema(as_json(document)));
}

TEST(PipelineDocument, HasTheThreeNumbersLast) {
  PipelineDocument document;
  document.file = "t.json.gz";
  document.steps = 2;
  document.dp_ranks = 1;
  document.stages = 2;
  document.ops = 1200;
  document.slowdown = {3000, 2000, 1.5, 0.25, 1.2194, 1, {{0, 1, 1.4}, {0, 0, 1}}, {1.5}, {1, 1.4}};
  const std::string text = pipeline_text(document, Style(false));
  EXPECT_THAT(text, HasSubstr("t.json.gz  2 steps  1 data-parallel rank x 2 stages  1,200 op"));
  EXPECT_THAT(text, HasSubstr("a step takes 3,000.0 ms, 2,000.0 if all"));
  EXPECT_THAT(text, EndsWith("slowdown S 1.5000; of the time lost, 25 % goes with the worst worker "
                             "(stage 1, data-parallel rank 0), M_W 0.2500, and 122 % with the last "
                             "stage, M_S 1.2194\n"));
  EXPECT_TRUE(fits_what_if_schema(as_json(document)));
  document.slowdown.by_last_stage.reset();
  EXPECT_TRUE(fits_what_if_schema(as_json(document)));
  EXPECT_THAT(pipeline_text(document, Style(false)),
              EndsWith("nothing with the last stage, M_S -\n"));
}

}  // namespace
}  // namespace lockstep
