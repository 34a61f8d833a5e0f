#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/tools/whatif/forecast.h"
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

}  // namespace
}  // namespace lockstep
