// What a fitted row says nothing of, and what intervals allow for it.
#include "sim/calibrate/row_unseen.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "scenarios/parse/suite.h"
#include "sim/calibrate/alternatives.h"
#include "sim/calibrate/row_fit.h"
#include "sim/calibrate/row_simulator.h"

namespace lockstep {
namespace {

RunPlan plan_of(const std::string& model) {
  const auto file =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/emulated_resnet50.json",
                         {.sets = {"/model={\"kind\": \"" + model + "\"}"}, .seed = {}});
  EXPECT_TRUE(file) << to_text(file.errors().front());
  return make_plans(file.value()).value().front();
}

void expect_inside(const RowFit& fit, const std::string& what) {
  for (const PredictedRow& row : fit.rows) {
    EXPECT_GE(row.row.ms, row.low * 0.9999) << what << ": " << row.row.ranks;
    EXPECT_LE(row.row.ms, row.high * 1.0001) << what << ": " << row.row.ranks;
  }
}

// Who sums gradients after backward hides nothing: an interval holds that machine, with compute
// alone and without, from one rank and from several.
TEST(RowUnseen, CollectivesMayNotBeHidden) {
  const RunPlan plan = plan_of("vgg16");
  MachineModel made = *machine_preset("dgx_v100");
  made.overlap_slowdown = kNotHidden;
  slow_link(4, &made.cost.link);
  const RowSimulator simulator(plan);
  for (const int64_t fitted : {1, 2, 8})
    for (const bool alone : {true, false}) {
      if (alone && fitted == 1) continue;
      PublishedTable table{"made", {}};
      for (const int64_t ranks : {1, 2, 4, 8})
        table.rows.push_back({ranks,
                              {},
                              simulator.step_ms({made}, {.ranks = ranks}),
                              ranks > 1 || !alone,
                              ranks == fitted});
      ASSERT_GT(table.rows[3].ms, table.rows[0].ms * 1.05);
      const auto fit = fit_row(plan, *machine_preset("dgx_v100"), table);
      ASSERT_TRUE(fit) << to_text(fit.errors().front());
      expect_inside(fit.value(), std::to_string(fitted) + (alone ? " and 1" : ""));
    }
}

// What ranks of a host share, each rank more takes more of: eight take seven times what two do.
TEST(RowUnseen, WhatAHostSharesGrowsWithItsRanks) {
  EXPECT_DOUBLE_EQ(growth_of(8, 2, 8).most, 7);
  EXPECT_DOUBLE_EQ(growth_of(64, 2, 8).most, 7);
  EXPECT_DOUBLE_EQ(growth_of(64, 8, 8).most, 2);
  EXPECT_DOUBLE_EQ(growth_of(64, 2, 1).most, 6);
  EXPECT_DOUBLE_EQ(growth_of(2, 8, 8).least, 1.0 / 7);
  const PublishedTable table{
      "made", {{1, {}, 300, false, false}, {2, {}, 310, true, true}, {8, {}, 365, true, false}}};
  expect_inside(fit_row(plan_of("resnet50"), *machine_preset("dgx_v100"), table).value(), "host");
}

// One rank's row is of one accelerator, which is no faster and no slower than others on average.
TEST(RowUnseen, OtherRowsAreOfOtherAccelerators) {
  EXPECT_EQ(other_accelerators(8, 8, kRankSpread), 0);
  EXPECT_NEAR(other_accelerators(2, 1, kRankSpread), 2 * std::sqrt(2) * kRankSpread, 1e-9);
  EXPECT_LT(other_accelerators(64, 8, kRankSpread), other_accelerators(4, 2, kRankSpread));
  EXPECT_LT(other_accelerators(2, 1, 1), 1);
  const RunPlan plan = plan_of("resnet50");
  const PublishedTable table{
      "made", {{1, {}, 300, false, false}, {2, {}, 303, true, true}, {8, {}, 297, true, false}}};
  const auto fit = fit_row(plan, *machine_preset("dgx_v100"), table).value();
  expect_inside(fit, "faster");
  EXPECT_NEAR(fit.rows[0].low, 303, 0.1);
  SimulatedAs as;
  as.ranks = 8;
  const auto others = steps_of_alternatives(plan, fit.machine, as).value();
  EXPECT_LT(*std::min_element(others.begin(), others.end()), 0.985);
}

// A step's compute is that of its samples; nobody knows how much of it is there without them.
TEST(RowUnseen, ComputeGoesWithTheSamplesOfAPass) {
  PublishedTable table{"made", {{1, {}, 800, true, true}, {1, {}, 250, true, false}}};
  table.rows[0].samples = 64;
  table.rows[1].samples = 16;
  const auto fit = fit_row(plan_of("resnet50"), *machine_preset("dgx_v100"), table).value();
  EXPECT_NEAR(fit.rows[1].ms, 200, 1);
  EXPECT_NEAR(fit.rows[1].high, 500, 5);
  EXPECT_LE(fit.rows[1].low, 200);
  EXPECT_THAT(fit.notes, testing::Contains(testing::HasSubstr("micro-batches of other sizes")));
  table.rows[0].passes = 4;  // of 16 samples, too
  const auto alike = fit_row(plan_of("resnet50"), *machine_preset("dgx_v100"), table).value();
  EXPECT_NEAR(alike.rows[1].ms, 200, 1);
  EXPECT_LT(alike.rows[1].high, 210);
  table.rows[1].samples = 1e9;
  EXPECT_FALSE(fit_row(plan_of("resnet50"), *machine_preset("dgx_v100"), table));
}

TEST(RowUnseen, LinksMayBeThoseOfPciExpress) {
  const CostModel nvlink = machine_preset("dgx_v100")->cost;
  EXPECT_EQ(unseen_slower(nvlink, 1).link, kMostSlower);
  EXPECT_EQ(unseen_slower(nvlink, 8).link, 1);
  EXPECT_EQ(unseen_slower(nvlink, 8).across, kUnseenSlower);
  EXPECT_EQ(unseen_slower(machine_preset("ib_hdr")->cost, 1).link, kUnseenSlower);
  EXPECT_EQ(unseen_slower(machine_preset("25gbe")->cost, 1).link, kMostSlower);
  CostModel shared = nvlink;
  shared.cores_per_host = 1;
  EXPECT_EQ(unseen_slower(shared, 1).link, kUnseenSlower);
  CostModel switches = nvlink;
  switches.ranks_per_switch = 4;
  EXPECT_EQ(unseen_slower(switches, 1).link, kUnseenSlower);
}

}  // namespace
}  // namespace lockstep
