#include <gmock/gmock.h>

#include "sim/report/timeline_svg.h"
#include "tests/sim/analysis/made_run.h"
#include "tests/sim/report/well_formed.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string svg_of_run(const RunOutcome& outcome, std::optional<int64_t> step = {}) {
  return timeline_svg(timeline_of(outcome),
                      {.name = "r", .step = step, .faults = fault_marks(outcome), .notes = {}});
}

TEST(TimelineSvg, DrawsEveryRanksPhasesAndBuckets) {
  MadeRun run;
  run.world_size = 3;
  run.steps = 4;
  const RunOutcome outcome = run.make();
  const std::string text = svg_of_run(outcome, 3);
  EXPECT_EQ(why_not_well_formed(text), "");
  EXPECT_THAT(text, HasSubstr("Step 3: ranks and buckets"));
  for (const char* name : {">rank 0<", ">rank 2<", ">forward<", ">backward<", ">compute<", ">comm<",
                           "rank 1: all_reduce 8, bucket 1, 1.000 MB; arrives at",
                           "rank 2: optimizer 1.000 ms", "9 collectives of 3 measured steps."})
    EXPECT_THAT(text, HasSubstr(name));
  EXPECT_THAT(text, Not(HasSubstr("are drawn")));
  EXPECT_THAT(text, Not(HasSubstr("never ended")));
  EXPECT_EQ(text, svg_of_run(outcome, 3));
}

TEST(TimelineSvg, DrawsTheStepOfMedianLengthUnlessAsked) {
  MadeRun run;
  run.steps = 6;
  run.slower = [](int64_t, int64_t step, Phase phase) {
    MadeRun::Slower slower;
    if (phase == Phase::forward) slower.more_ms = static_cast<double>((step * 7) % 6);
    return slower;
  };
  const Timeline timeline = timeline_of(run.make());
  // Steps 2 to 6 take 2, 3, 4, 5, 0 ms more.
  EXPECT_EQ(typical_step(timeline), 3);
  EXPECT_THAT(drawable_steps(timeline), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(svg_of_run(run.make()),
              HasSubstr("Of the 5 measured steps it has the median length."));
}

TEST(TimelineSvg, OfManyRanksDrawsTheLateOnesAndSaysSo) {
  MadeRun run;
  run.world_size = 300;
  run.steps = 3;
  run.buckets = 60;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return rank == 217 && phase == Phase::forward ? MadeRun::Slower{2, 0} : MadeRun::Slower{};
  };
  const std::string text = svg_of_run(run.make(), 2);
  EXPECT_THAT(text, HasSubstr("16 of 300 ranks are drawn"));
  EXPECT_THAT(text, HasSubstr("40 of 60 collectives are drawn"));
  EXPECT_THAT(text, HasSubstr(">rank 217<"));
  EXPECT_LT(text.size(), 400'000u);
  EXPECT_EQ(why_not_well_formed(text), "");
}

TEST(TimelineSvg, MarksFaultsAndWhatNeverEnded) {
  MadeRun run;
  run.world_size = 3;
  run.steps = 3;
  RunOutcome outcome = run.make();
  outcome.plan.scenario.faults.resize(1);
  outcome.plan.scenario.faults[0].kind = FaultKind::stop;
  auto& events = outcome.ranks[1].events;
  // Rank 1 is stopped in backward of step 3 and enters none of its collectives.
  const auto cut = std::find_if(events.begin(), events.end(), [](const Event& event) {
    return event.step == 3 && event.phase == static_cast<uint16_t>(Phase::backward);
  });
  ASSERT_NE(cut, events.end());
  Event receipt = *cut;
  receipt.kind = static_cast<uint16_t>(EventKind::receipt);
  receipt.subject = kFirstFault;
  receipt.time_ns += 1'000'000;
  events.erase(cut + 1, events.end());
  events.push_back(receipt);
  for (const size_t rank : {0, 2})
    std::erase_if(outcome.ranks[rank].events, [](const Event& event) {
      return event.step == 3 && event.kind == static_cast<uint16_t>(EventKind::end);
    });
  const std::string text = svg_of_run(outcome, 3);
  EXPECT_EQ(why_not_well_formed(text), "");
  for (const char* part : {"fault 0: stop at ", ">a fault acts<", ">never ended<",
                           "not all ranks do", "never ends", "Metrics leave this step out: rank 1"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(svg_of_run(outcome, 2), HasSubstr("Faults acted 1 time outside of this step."));
}

TEST(TimelineSvg, OfNothingIsDrawn) {
  EXPECT_THAT(svg_of_run(RunOutcome{}), HasSubstr("nothing to draw"));
  MadeRun one;
  one.world_size = 1;
  one.steps = 1;
  EXPECT_EQ(why_not_well_formed(svg_of_run(one.make())), "");
}

TEST(Receipts, AreCalledAsTheScenarioSays) {
  Scenario scenario;
  scenario.faults.resize(1);
  scenario.faults[0].kind = FaultKind::stop;
  EXPECT_EQ(receipt_name(scenario, kFirstFault), "fault 0: stop");
  EXPECT_EQ(receipt_name(scenario, kFirstFault + 1), "receipt 65537");
  EXPECT_EQ(receipt_name(scenario, 0), "receipt 0");
  EXPECT_EQ(receipt_name(scenario, -1), "receipt -1");
}

}  // namespace

}  // namespace lockstep
