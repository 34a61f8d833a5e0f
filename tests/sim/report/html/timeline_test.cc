#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "sim/report/html/timeline.h"
#include "tests/sim/analysis/made_mesh.h"

namespace lockstep {
namespace {

using nlohmann::json;

json timeline(const MadeRun& run, const HtmlFocus& focus = {}, int64_t most = kMostPassages) {
  return json::parse(html_timeline(run.make(), {"made", focus}, most));
}

TEST(HtmlTimeline, HasEveryPhaseAndCollective) {
  MadeRun run;
  run.world_size = 3;
  run.steps = 4;
  const json all = timeline(run);
  EXPECT_EQ(all["world_size"], 3);
  EXPECT_EQ(all["phases"].size(), 3u);
  EXPECT_EQ(all["phases"][0].size() % 4, 0u);
  ASSERT_EQ(all["collectives"].size(), 4u * 3);
  const json& first = all["collectives"][0];
  ASSERT_EQ(first.size(), 5u + 3) << "what it is, then the ranks";
  EXPECT_EQ(first[1], "all_reduce");
  for (size_t rank = 5; rank < 8; ++rank) EXPECT_LT(first[rank][1], first[rank][3]);
  EXPECT_EQ(all["steps"].size(), 3u) << "the first warms up";
  EXPECT_EQ(all["metrics"]["ranks"].size(), 3u);
  EXPECT_EQ(all["last_drawn"], 4);
}

TEST(HtmlTimeline, OfALongRunTheStepsAroundTheFocusAreDrawn) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 100;
  const json all = timeline(run, {{1}, 50, "hang"}, 200);
  EXPECT_EQ(all["focus"]["ranks"], json({1}));
  EXPECT_EQ(all["last_step"], 100);
  const int64_t first = all["first_drawn"], last = all["last_drawn"];
  EXPECT_LT(first, 50);
  EXPECT_GT(last, 50);
  EXPECT_LT(last - first, 30);
  for (const json& one : all["collectives"]) {
    EXPECT_GE(one[4], first);
    EXPECT_LE(one[4], last);
  }
}

TEST(HtmlTimeline, HasCollectivesOfGroups) {
  RunOutcome outcome = made_mesh();
  end_before(&outcome, 3, 0, 2);
  const json all = json::parse(html_timeline(outcome, {"mesh", {}}));
  EXPECT_EQ(all["groups"][2], json({"3", {0, 2}}));
  ASSERT_EQ(all["group_collectives"].size(), 8u);
  const json& row = all["group_collectives"][3];
  ASSERT_EQ(row.size(), 6u + 4);
  EXPECT_EQ(row[0], 1) << "its group";
  EXPECT_EQ(row[1], 2);
  EXPECT_EQ(row[2], "all_reduce");
  EXPECT_EQ(row[4], 16'000);
  EXPECT_EQ(row[6], 0) << "it is not in it";
  EXPECT_TRUE(row[8].is_array());
  EXPECT_TRUE(row[9].is_null()) << "it never came";
  EXPECT_EQ(
      json::parse(html_timeline(outcome, {"mesh", {{}, 2, ""}}, 30))["group_collectives"].size(),
      4u)
      << "of the steps that are drawn";
}

TEST(HtmlTimeline, FocusIsWhoMadeItFailAndElseWhoWasLate) {
  Failure failure;
  failure.rank = 2;
  failure.step = 3;
  failure.kind = "hang";
  Straggler late;
  late.rank = 1;
  late.late_class = "compute";
  late.first_late_step = 5;
  Divergence divergence;
  divergence.step = 4;
  divergence.cause = "wrong_divisor";
  EXPECT_EQ(focus_of(failure, divergence, late).ranks, std::vector<int64_t>{2});
  EXPECT_EQ(focus_of({}, divergence, late).step, 4);
  EXPECT_EQ(focus_of({}, {}, late).what, "late: compute");
  EXPECT_EQ(focus_of({}, {}, {}).step, 0);
  EXPECT_TRUE(focus_of({}, {}, Straggler()).ranks.empty());
}

TEST(HtmlTimeline, EachSaysOfWhichRunItIs) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 2;
  HtmlTimelines all;
  RunResult result;
  result.name = "made";
  for (const size_t index : {3u, 0u}) all.add(index, run.make(), result);
  const auto texts = all.take({true, false, true, true});
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(json::parse(texts[0])["run"], 0);
  EXPECT_EQ(json::parse(texts[1])["run"], 2) << "the second run never ended";
}

}  // namespace
}  // namespace lockstep
