#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "sim/sweep/baseline.h"
#include "sim/sweep/measure.h"
#include "sim/sweep/result.h"
#include "tests/sim/sweep/made_sweep.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Contrast, TheFastestCapAgainstTheDefaultWithItsReason) {
  MadeSweep sweep;
  sweep.add(2, "bucketed", 4, 98.3, 0.1, 5);
  sweep.add(2, "bucketed", 8, 99.8, 5, 9);
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  const auto found = cap_contrasts(sweep.results(10), 1);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_TRUE(found[0].significant);
  EXPECT_THAT(found[0].text, HasSubstr("recommended: bucket_cap_mb 4: 1.7 % faster than 25 MiB"));
  EXPECT_THAT(found[0].text, HasSubstr("because the tail bucket shrinks from 9.7 to 0.1 MB"));
}

TEST(Contrast, TheDefaultMayBeTheBest) {
  MadeSweep sweep;
  sweep.add(2, "bucketed", 4, 110, 0.1, 5);
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  sweep.add(2, "bucketed", 50, 105, 9.7, 10);
  EXPECT_THAT(
      cap_contrasts(sweep.results(9), 1)[0].text,
      HasSubstr("recommended: bucket_cap_mb 25: 50, the best of the others, is 5.0 % slower "
                "than 25 MiB"));
}

TEST(Contrast, TooFewRoundsTellNothing) {
  MadeSweep sweep;
  sweep.add(2, "bucketed", 4, 90, 0.1, 5);
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  EXPECT_FALSE(cap_contrasts(sweep.results(5), 1)[0].significant);
  EXPECT_THAT(cap_contrasts(sweep.results(5), 1)[0].text,
              HasSubstr("5 rounds are too few to tell, 6 would do"));
  EXPECT_TRUE(cap_contrasts(sweep.results(6), 1)[0].significant);
}

// Eight caps that are all alike: the best of them is called faster once in twenty times at most.
TEST(Contrast, NothingIsRecommendedWhereNothingDiffers) {
  int called = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    MadeSweep sweep;
    sweep.noise = 0.03;
    sweep.seed = seed;
    for (const double cap : {1, 2, 4, 8, 16, 25, 50, 100}) sweep.add(2, "c10d", cap, 100, 1, 1);
    called += cap_contrasts(sweep.results(9), seed)[0].significant;
  }
  EXPECT_LE(called, 6);
}

TEST(Contrast, ReducersOfEachWorldAgainstTheFirst) {
  MadeSweep sweep;
  for (const int64_t world : {2, 3}) {
    sweep.add(world, "bucketed", 4, 80, 1, 1);
    sweep.add(world, "bucketed", 25, 90, 1, 1);
    sweep.add(world, "c10d", 25, 99, 1, 1);
    sweep.add(world, "flat", std::nullopt, 180, 1, 1);
  }
  const auto found = reducer_contrasts(sweep.results(8), 1);
  ASSERT_THAT(found, SizeIs(4));
  EXPECT_NEAR(found[0].ratio.value, 1.1, 1e-9);
  EXPECT_NEAR(found[1].ratio.value, 2, 1e-9);
  EXPECT_THAT(found[3].text, HasSubstr("world_size=3 reducer=flat: 100.0 % slower than "
                                       "world_size=3 reducer=bucketed bucket_cap_mb=25"));
}

TEST(Contrast, VariationsInPairsThatDifferInOneKey) {
  MadeSweep sweep;
  const std::vector<std::tuple<const char*, const char*, double>> all = {
      {"false", "forwards", 100},
      {"false", "backwards", 110},
      {"true", "forwards", 200},
      {"true", "backwards", 300}};
  for (const auto& [search, order, step_ms] : all) {
    sweep.add(2, "bucketed", 25, step_ms, 1, 1);
    sweep.cells.back().varied = {{"/search", search}, {"/order", order}};
  }
  const auto found = reducer_contrasts(sweep.results(8), 1);
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_NEAR(found[0].ratio.value, 1.1, 1e-9);
  EXPECT_NEAR(found[1].ratio.value, 2, 1e-9);
  EXPECT_NEAR(found[2].ratio.value, 1.5, 1e-9);
  EXPECT_EQ(found[2].against, 2U);
}

TEST(Threshold, Forms) {
  EXPECT_EQ(parse_threshold("step_ms<=120").value().text(), "step_ms<=120");
  EXPECT_EQ(parse_threshold(" overlap > 0.5 ").value().text(), "overlap>0.5");
  for (const char* bad : {"", "step_ms", "step_ms<=", "step_ms<=fast", "step_ms=<3", "<=3"})
    EXPECT_FALSE(parse_threshold(bad)) << bad;
  EXPECT_THAT(to_text(parse_threshold("stepms<=3").errors()[0]),
              HasSubstr("unknown metric \"stepms\"; did you mean \"step_ms\"?"));
}

TEST(Threshold, JudgesByIntervals) {
  MadeSweep sweep;
  sweep.noise = 0.02;
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  const auto lines = sweep.results(9);
  const auto verdict = [&](const std::string& text) {
    return judge(parse_threshold(text).value(), lines).verdict;
  };
  EXPECT_EQ(verdict("step_ms<=150"), Verdict::pass);
  EXPECT_EQ(verdict("step_ms<=50"), Verdict::fail);
  EXPECT_EQ(verdict(fmt::format("step_ms<{}", lines[0].step_ms.value)), Verdict::inconclusive);
  EXPECT_EQ(verdict("wrong<=0"), Verdict::pass);
  EXPECT_EQ(verdict("overlap>0"), Verdict::inconclusive) << "there is none";
  EXPECT_EQ(judge(parse_threshold("step_ms<=1").value(), {}).verdict, Verdict::inconclusive);
}

Baseline baseline_of(const std::vector<CellResult>& lines) {
  Baseline baseline{"s", "cpu", 2, {}};
  for (const CellResult& line : lines) {
    baseline.lines.push_back({label_of(line.cell), {}});
    for (const SweepRun& run : line.runs)
      baseline.lines.back().steps_ms.push_back(run.numbers.step_ms);
  }
  return baseline;
}

TEST(Baseline, FindsWhatBecameSlower) {
  MadeSweep before, same, slower;
  for (MadeSweep* sweep : {&before, &same, &slower}) {
    sweep->noise = 0.01;
    sweep->seed = static_cast<uint64_t>(sweep - &before) + 1;
    sweep->add(2, "bucketed", 4, 80, 1, 1);
    sweep->add(2, "bucketed", 25, sweep == &slower ? 110 : 100, 1, 1);
  }
  const Baseline earlier = baseline_of(before.results(8));
  EXPECT_EQ(judge(earlier, "s", "cpu", 2, same.results(8), 1).verdict, Verdict::pass);
  const Judgement found = judge(earlier, "s", "cpu", 2, slower.results(8), 1);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_THAT(found.lines, ElementsAre(HasSubstr("bucket_cap_mb=25")));
  EXPECT_EQ(judge(earlier, "s", "cpu", 4, slower.results(8), 1).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge(earlier, "other", "cpu", 2, slower.results(8), 1).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge(earlier, "s", "cpu", 2, slower.results(3), 1).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge(earlier, "s", "cpu", 2, {}, 1).verdict, Verdict::inconclusive);
}

TEST(Baseline, ThatIsNoneIsBadInput) {
  EXPECT_FALSE(load_baseline("/nowhere.json"));
  EXPECT_FALSE(load_baseline(LOCKSTEP_SOURCE_DIR "/scenarios/schema.json"));
}

TEST(Reference, ThePublishedSweepAgreesWithItself) {
  const auto reference = load_reference(LOCKSTEP_SOURCE_DIR "/golden/data/pytorch_gloo_sweep.json");
  ASSERT_TRUE(reference);
  EXPECT_THAT(reference.value().series[0].rows, SizeIs(23));
  MadeSweep sweep;
  for (const auto& [cap, value] : reference.value().series[0].rows)
    sweep.add(2, "c10d", cap, value * 1.01, value - 470, 1);
  const auto found = agreements(reference.value(), sweep.results(2));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].lines, 23);
  EXPECT_NEAR(found[0].mean_error, 0.01, 1e-9);
  EXPECT_NEAR(found[0].correlation, 1, 1e-9);
  EXPECT_NEAR(found[0].tail_published, 1, 1e-9);
}

TEST(MachineWatch, AMomentOfWorkIsWaitedFor) {
  std::vector<double> spins = {4.1, 8, 8, 8};  // from the last
  const auto spin = [&] {
    const double ms = spins.back();
    spins.pop_back();
    return ms;
  };
  EXPECT_EQ(settled_spin_ms(4, spin), 4.1);
  spins = {4, 8, 8, 7, 8, 8};
  EXPECT_EQ(settled_spin_ms(4, spin), 7);
  EXPECT_EQ(spins.size(), 1U);
}

TEST(MachineWatch, RunsThatWereDisturbed) {
  EXPECT_FALSE(is_contaminated({4, 4.1}, 4));
  EXPECT_TRUE(is_contaminated({4, 9}, 4));
  EXPECT_TRUE(is_contaminated({9, 4}, 4));
  std::vector<Spins> runs(20, Spins{4, 4});
  EXPECT_EQ(machine_verdict(runs, 4, 0).verdict, "quiet");
  for (size_t i = 0; i < 5; ++i) runs[i].after_ms = 8;
  EXPECT_EQ(machine_verdict(runs, 4, 1).verdict, "disturbed");
  for (Spins& spins : runs) spins.before_ms = 8;
  const MachineVerdict busy = machine_verdict(runs, 4, 2);
  EXPECT_EQ(busy.verdict, "busy");
  EXPECT_EQ(busy.contaminated, 20);
  EXPECT_EQ(busy.repeated, 2);
  EXPECT_EQ(machine_verdict({}, 4, 0).verdict, "quiet");
  EXPECT_GT(spin_ms(), 0);
}

}  // namespace
}  // namespace lockstep
