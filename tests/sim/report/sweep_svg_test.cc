#include "sim/report/sweep_svg.h"

#include <gmock/gmock.h>

#include "tests/sim/report/well_formed.h"
#include "tests/sim/sweep/made_sweep.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

SweepDocument document_of(const MadeSweep& sweep) {
  SweepDocument document;
  document.scenario = "a & b";
  document.rounds = 8;
  document.lines = sweep.results(8);
  document.caps = cap_contrasts(document.lines, 1);
  conclude(&document);
  return document;
}

MadeSweep caps() {
  MadeSweep sweep;
  sweep.add(2, "bucketed", 1, 110, 0.1, 5);
  sweep.add(2, "bucketed", 4, 98.3, 0.1, 5);
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  sweep.add(3, "c10d", 25, 130, 9.7, 10);
  sweep.add(2, "flat", std::nullopt, 120, 100, 50);
  return sweep;
}

TEST(SweepSvg, HasASeriesForEachReducerAndWorldSizeAndTheRecommendedCap) {
  const SweepDocument document = document_of(caps());
  const std::string text = sweep_svg(document);
  EXPECT_EQ(why_not_well_formed(text), "");
  for (const char* name : {">world_size=2 reducer=bucketed<", ">world_size=3 reducer=c10d<",
                           ">world_size=2 reducer=flat<", ">4 MiB<", ">recommended<",
                           ">bucket_cap_mb (MiB)<", ">step time (ms)<", "a &amp; b: sweep"})
    EXPECT_THAT(text, HasSubstr(name));
  EXPECT_THAT(text, Not(HasSubstr("ublished")));
  EXPECT_EQ(text, sweep_svg(document));
}

TEST(SweepSvg, NothingIsRecommendedOfWhatCannotBeToldApart) {
  MadeSweep sweep = caps();
  sweep.noise = 0.2;
  const SweepDocument document = document_of(sweep);
  ASSERT_FALSE(document.caps.at(0).significant);
  const std::string text = sweep_svg(document);
  EXPECT_THAT(text, Not(HasSubstr("recommended")));
  EXPECT_THAT(text, HasSubstr("no significant difference"));
  EXPECT_THAT(text, HasSubstr("95 % interval"));
}

TEST(SweepSvg, ThePublishedSweepStandsBesideItsOwnMetric) {
  SweepDocument document = document_of(caps());
  document.reference = Reference{"their tables",
                                 "theirs",
                                 "backward_ms",
                                 {{"DDP", {"bucketed"}, 2, {{4, 97}, {25, 99}, {100, 120}}},
                                  {"another", {"bucketed"}, 64, {{4, 500}}}}};
  const std::string text = sweep_svg(document);
  EXPECT_THAT(text, HasSubstr("backward_ms over bucket_cap_mb"));
  EXPECT_THAT(text, HasSubstr(">published, world_size=2<"));
  EXPECT_THAT(text, HasSubstr("backward time (ms): 120; DDP"));
  EXPECT_THAT(text, Not(HasSubstr("world_size=64")));
  document.reference->metric = "step_ms";
  EXPECT_THAT(sweep_svg(document), Not(HasSubstr("backward_ms over")));
  EXPECT_THAT(sweep_svg(document), HasSubstr("step time (ms): 120; DDP"));
}

TEST(SweepSvg, WithoutSeveralCapsItIsDrawnOverWorldSizes) {
  MadeSweep sweep;
  for (const int64_t world_size : {2, 3, 6, 7}) {
    sweep.add(world_size, "flat", std::nullopt, 100 + 5.0 * static_cast<double>(world_size), 100,
              50);
    sweep.add(world_size, "bucketed", 25, 100, 100, 50);
  }
  const std::string text = sweep_svg(document_of(sweep));
  EXPECT_THAT(text, HasSubstr("step_ms over world_size"));
  EXPECT_THAT(text, HasSubstr(">reducer=flat<"));
  EXPECT_THAT(text, HasSubstr(">reducer=bucketed bucket_cap_mb=25<"));
  EXPECT_THAT(text, HasSubstr("world size (ranks): 7; step time (ms): 135"));
}

TEST(SweepSvg, OfNoLineAndOfOneIsDrawn) {
  EXPECT_THAT(sweep_svg(document_of(MadeSweep{})), HasSubstr("nothing to draw"));
  MadeSweep one;
  one.add(1, "bucketed", 25, 100, 0, 0);
  EXPECT_EQ(why_not_well_formed(sweep_svg(document_of(one))), "");
}

}  // namespace
}  // namespace lockstep
