#include <gtest/gtest.h>

#include "sim/analysis/metrics.h"
#include "sim/report/analyze_document.h"
#include "tests/sim/analysis/made_run.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

std::string errors_of(const nlohmann::ordered_json& document) {
  return schema_errors(recorded_analysis_schema().c_str(), nlohmann::json::parse(document.dump()));
}

TEST(RecordedAnalysis, FitsItsSchema) {
  MadeRun run;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{1, rank == 1 && phase == Phase::backward ? 200.0 : 0};
  };
  const Timeline timeline = timeline_of(run.make());
  RecordedAnalysis analysis{.folder = "runs/today", .world_size = 4};
  RunOutcome outcome = run.make();
  outcome.ranks[1].events.resize(100);
  analysis.end = end_of_recording(outcome);
  ASSERT_TRUE(analysis.end.meeting);
  analysis.result.metrics = metrics_of(timeline);
  analysis.result.straggler = find_straggler(models_of(timeline));
  ASSERT_TRUE(analysis.result.straggler);
  EXPECT_EQ(errors_of(as_json(analysis)), "");
  analysis.intervals = &timeline;
  EXPECT_EQ(errors_of(as_json(analysis)), "");
  analysis.result.straggler.reset();
  analysis.end = {};
  auto document = as_json(analysis);
  EXPECT_EQ(errors_of(document), "");
  document["colour"] = "red";
  EXPECT_NE(errors_of(document), "");
  document.erase("colour");
  document["metrics"].erase("step_ms");
  EXPECT_NE(errors_of(document), "");
}

}  // namespace

}  // namespace lockstep
