#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/report/analyze_document.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;

bool fits_what_if_schema(const nlohmann::ordered_json& document) {
  return schema_errors(what_if_schema_text(), json::parse(document.dump())).empty();
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
