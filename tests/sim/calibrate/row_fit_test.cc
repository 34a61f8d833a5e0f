// Machines that are fitted to one row of a published table.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "scenarios/parse/suite.h"
#include "sim/calibrate/alternatives.h"
#include "sim/calibrate/row_fit.h"
#include "sim/calibrate/row_simulator.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/simulate.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

RunPlan resnet(const std::string& kind) {
  const auto file = load_scenario_file(
      LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/emulated_resnet50.json",
      {.sets = {"/model={\"kind\": \"" + kind + "\"}", "/batch_size=32"}, .seed = {}});
  EXPECT_TRUE(file) << to_text(file.errors().front());
  return make_plans(file.value()).value().front();
}

MachineModel machine() { return *machine_preset("dgx_v100"); }

PublishedTable published(const std::string& name) {
  auto table =
      read_published_table(LOCKSTEP_SOURCE_DIR "/golden/data/published/" + name + "_dgx_v100.json");
  EXPECT_TRUE(table) << to_text(table.errors().front());
  return table.value();
}

double step_ms(const RunPlan& plan, const MachineModel& machine, int64_t ranks, double cap_mb) {
  SimulatedAs as;
  as.ranks = ranks;
  as.steps = 3;
  as.cap_mb = cap_mb;
  const Job job = job_of_plan(plan, machine, as).value().job;
  return numbers_of(job, simulate(job).value()).step_ms;
}

// The fit is to one row of ten, by the rule that stands in row_fit.h. That rule was made with these
// tables in sight; docs/simulation.md tells of others.
TEST(RowFit, NineRowsOfPublishedTablesFollowFromOne) {
  struct Bounds {
    const char *table, *model;
    double mean = 0, most = 0;
  };
  for (const Bounds& one :
       {Bounds{"resnet50", "resnet50", 0.02, 0.05}, Bounds{"resnet101", "resnet101", 0.02, 0.05},
        Bounds{"resnext50", "resnext50_32x4d", 0.02, 0.05},
        Bounds{"resnext101", "resnext101_32x8d", 0.02, 0.05}}) {
    const RunPlan plan = resnet(one.model);
    const auto fit = fit_row(plan, machine(), published(one.table));
    ASSERT_TRUE(fit) << to_text(fit.errors().front());
    double sum = 0, most = 0;
    for (const PredictedRow& row : fit.value().rows) {
      const double error = std::fabs(row.ms / row.row.ms - 1);
      EXPECT_LE(row.low, row.ms);
      EXPECT_GE(row.high, row.ms);
      if (row.row.fitted) {
        EXPECT_LT(error, 0.0005) << one.table;
        continue;
      }
      sum += error;
      most = std::max(most, error);
    }
    EXPECT_LT(sum / 9, one.mean) << one.table;
    EXPECT_LT(most, one.most) << one.table;
  }
}

// All of these tables say that 1 MiB is slower than 25, at every world size.
TEST(RowFit, NoSignOfACapIsWrong) {
  const auto fit = fit_row(resnet("resnet50"), machine(), published("resnet50"));
  for (const PredictedRow& large : fit.value().rows)
    for (const PredictedRow& small : fit.value().rows)
      if (large.row.ranks == small.row.ranks && large.row.cap_mb == 25 && small.row.cap_mb == 1) {
        EXPECT_GT(small.ms, large.ms) << large.row.ranks << " ranks";
      }
}

// A machine of its own kind is found again: what every explanation says holds the made table.
TEST(RowFit, IntervalsHoldAMachineOfEachKind) {
  const RunPlan plan = resnet("resnet50");
  for (const int kind : {0, 1, 2}) {
    MachineModel made = machine();
    if (kind == 0) made.parameter_ns = 40'000;
    if (kind == 1) made.sync_ns = 9'000'000;
    if (kind == 2) made.cost.across.beta_fs_per_byte *= 12, made.cost.link.beta_fs_per_byte *= 12;
    made.bucket_ns = 30'000;
    PublishedTable table{"made", {{1, {}, 300, false, false}}};
    for (const int64_t ranks : {1, 16, 32})
      for (const double cap_mb : {1.0, 25.0})
        table.rows.push_back(
            {ranks, cap_mb, step_ms(plan, made, ranks, cap_mb), true, ranks == 16 && cap_mb == 25});
    const auto fit = fit_row(plan, machine(), table);
    ASSERT_TRUE(fit) << to_text(fit.errors().front());
    for (const PredictedRow& row : fit.value().rows) {
      EXPECT_GE(row.row.ms, row.low * 0.9999) << kind << ": " << row.row.ranks;
      EXPECT_LE(row.row.ms, row.high * 1.0001) << kind << ": " << row.row.ranks;
    }
    EXPECT_TRUE(fit.value().machine.accuracy->cap_error.has_value());
  }
}

TEST(RowFit, WithoutComputeAloneItIsTakenFromTheRow) {
  const RunPlan plan = resnet("resnet50");
  const PublishedTable table{"made", {{4, 25.0, 500, true, true}, {8, 25.0, 500, true, false}}};
  const auto fit = fit_row(plan, machine(), table).value();
  ASSERT_FALSE(fit.explanations.empty());
  for (const RowExplanation& one : fit.explanations) EXPECT_EQ(one.excess, Excess::compute);
  EXPECT_NEAR(fit.rows[0].ms, 500, 0.1);
  EXPECT_TRUE(fit.emulated);
}

// How much of a row links are nobody knows without compute alone: the intervals hold a machine
// whose links are twice as slow, and one whose links take nothing.
TEST(RowFit, WithoutComputeAloneIntervalsHoldOtherLinks) {
  const RunPlan plan = resnet("resnet50");
  const MachineModel slow = *machine_preset("10gbe");
  for (const double factor : {0.1, 1.9}) {
    MachineModel made = slow;
    made.cost.link.beta_fs_per_byte =
        std::llround(static_cast<double>(made.cost.link.beta_fs_per_byte) * factor);
    PublishedTable table{"made", {}};
    for (const int64_t ranks : {1, 2, 8})
      for (const double cap_mb : {1.0, 25.0, 100.0})
        table.rows.push_back(
            {ranks, cap_mb, step_ms(plan, made, ranks, cap_mb), true, ranks == 2 && cap_mb == 25});
    const auto fit = fit_row(plan, slow, table);
    ASSERT_TRUE(fit) << to_text(fit.errors().front());
    for (const PredictedRow& row : fit.value().rows) {
      EXPECT_GE(row.row.ms, row.low * 0.9999) << factor << ": " << row.row.ranks;
      EXPECT_LE(row.row.ms, row.high * 1.0001) << factor << ": " << row.row.ranks;
    }
  }
}

// What a message takes no data sheet says: intervals of other worlds and caps hold what it may be,
// those of the file's alternatives too.
TEST(RowFit, LatencyIsInTheIntervals) {
  const RunPlan plan = resnet("resnet50");
  const MachineModel said = *machine_preset("100gbe");
  for (const bool alone : {true, false})
    for (const double factor : {3.0, 0.4}) {
      MachineModel made = said;
      delay_messages(factor, &made.cost.link);
      made.parameter_ns = 10'000;
      PublishedTable table{"made", {}};
      if (alone) table.rows.push_back({1, {}, step_ms(plan, said, 1, 25), false, false});
      for (const int64_t ranks : {2, 16, 128})
        for (const double cap_mb : {1.0, 25.0})
          table.rows.push_back({ranks, cap_mb, step_ms(plan, made, ranks, cap_mb), true,
                                ranks == 2 && cap_mb == 25});
      const auto fit = fit_row(plan, said, table);
      ASSERT_TRUE(fit) << to_text(fit.errors().front());
      for (const PredictedRow& row : fit.value().rows) {
        EXPECT_GE(row.row.ms, row.low * 0.9999) << factor << ": " << row.row.ranks;
        EXPECT_LE(row.row.ms, row.high * 1.0001) << factor << ": " << row.row.ranks;
      }
      if (!alone) continue;  // compute is as the plan says
      SimulatedAs as;
      as.ranks = 128;
      as.cap_mb = 1;
      const auto others = steps_of_alternatives(plan, fit.value().machine, as).value();
      const double off = step_ms(plan, made, 128, 1) / step_ms(plan, fit.value().machine, 128, 1);
      EXPECT_GE(*std::max_element(others.begin(), others.end()), off);
      EXPECT_LE(*std::min_element(others.begin(), others.end()), off);
    }
}

// Nobody saw TCP's links at all: they may be far from the line rate, which RDMA's are not.
TEST(RowFit, OneRankAllowsWhatTcpMayBe) {
  const RunPlan plan = resnet("resnet50");
  const PublishedTable table{"made", {{1, 25.0, 101, true, true}, {8, 25.0, 105, true, false}}};
  const auto high = [&](const char* word, double slower) {
    MachineModel made = *machine_preset(word);
    const auto fit = fit_row(plan, made, table).value();
    slow_link(slower, &made.cost.link);
    return fit.rows[1].high / step_ms(plan, made, 8, 25);
  };
  EXPECT_GE(high("25gbe", 8), 1);
  EXPECT_LT(high("ib_hdr", 32), 1);
}

// Buckets are rebuilt once in a training of any length, and not in each third step.
TEST(RowFit, NoStepHasTheRebuildOfBuckets) {
  const RunPlan plan = resnet("resnet50");
  MachineModel slow = *machine_preset("25gbe");
  slow.cost.link.alpha_ns = 5'000'000;
  SimulatedAs as;
  as.ranks = 16;
  as.steps = 3;
  const Job job = job_of_plan(plan, slow, as).value().job;
  ASSERT_GT(job.rebuild_ns, 0);
  const auto run = simulate(job).value();
  EXPECT_NEAR(RowSimulator(plan).step_ms({slow}, {.ranks = 16}),
              static_cast<double>(run.steps.back().duration_ns) * 1e-6, 1e-6);
}

// GPUs without NVLink share their host's PCI Express: each rank more slows all of them.
TEST(RowFit, RanksShareWhatTheirHostMoves) {
  const RunPlan plan = resnet("vgg16");
  MachineModel said = *machine_preset("100gbe");
  said.cost.ranks_per_host = 8;
  said.cost.cores_per_host = 1;
  said.cost.core_fs_per_byte = said.cost.link.beta_fs_per_byte;
  MachineModel made = said;
  slow_cores(3, &made.cost);
  PublishedTable table{"made", {{1, {}, 300, false, false}}};
  for (const int64_t ranks : {2, 4, 8})
    table.rows.push_back({ranks, 25.0, step_ms(plan, made, ranks, 25), true, ranks == 8});
  const auto fit = fit_row(plan, said, table).value();
  ASSERT_GT(table.rows[3].ms, 2 * table.rows[1].ms);
  for (const PredictedRow& row : fit.rows) {
    EXPECT_NEAR(row.ms / row.row.ms, 1, 0.2) << row.row.ranks;
    EXPECT_GE(row.row.ms, row.low * 0.9999) << row.row.ranks;
    EXPECT_LE(row.row.ms, row.high * 1.0001) << row.row.ranks;
  }
}

// A step that is twice as long as compute does not wait for broadcasts of buffers.
TEST(RowFit, WhatEachStepTakesBesideIsAPartOfIt) {
  const PublishedTable table{"made", {{1, {}, 300, false, false}, {8, 25.0, 600, true, true}}};
  const auto fit = fit_row(resnet("resnet50"), *machine_preset("25gbe"), table).value();
  EXPECT_LE(static_cast<double>(fit.machine.sync_ns) * 1e-6, kMostBeside * 600 + 0.01);
  EXPECT_NEAR(fit.rows[0].ms, 600, 0.1);
}

// A row of one host tells nothing of links between hosts.
TEST(RowFit, LinksThatTheRowDoesNotGoOverMayBeSlower) {
  const RunPlan plan = resnet("resnet50");
  MachineModel said = machine();
  said.cost.across.beta_fs_per_byte *= 16;
  MachineModel made = said;
  made.cost.across.beta_fs_per_byte = said.cost.across.beta_fs_per_byte * 19 / 10;
  made.parameter_ns = 20'000;
  PublishedTable table{"made", {{1, {}, 300, false, false}}};
  for (const int64_t ranks : {8, 16})
    table.rows.push_back({ranks, 25.0, step_ms(plan, made, ranks, 25), true, ranks == 8});
  const auto fit = fit_row(plan, said, table).value();
  EXPECT_GT(fit.rows[1].row.ms, fit.rows[1].ms * 1.005);
  EXPECT_LE(fit.rows[1].row.ms, fit.rows[1].high);
  EXPECT_THAT(fit.notes, testing::Contains(testing::HasSubstr("of one host")));
}

// Nor of what several hosts wait for beside their links.
TEST(RowFit, SeveralHostsMayTakeMoreBeside) {
  const RunPlan plan = resnet("resnet50");
  const PublishedTable table{
      "made",
      {{1, {}, 300, false, false}, {8, 25.0, 303, true, true}, {16, 25.0, 315, true, false}}};
  const auto fit = fit_row(plan, machine(), table).value();
  EXPECT_GE(fit.rows[1].high, fit.rows[1].ms + kMostBeside * 303);
  EXPECT_LT(fit.rows[0].high, 303.1);
  EXPECT_LE(fit.machine.alternatives.size(), 256U);
}

// An emulated scenario says its compute itself: on other compute than was fitted nothing is known.
TEST(RowFit, AccuracyIsOfTheFittedCompute) {
  const RunPlan plan = resnet("resnet50");
  const PublishedTable table{"made", {{4, 25.0, 500, true, true}, {8, 25.0, 500, true, false}}};
  const auto fit = fit_row(plan, machine(), table).value();
  SimulatedAs as;
  as.ranks = 4;
  Job job = job_of_plan(plan, fit.machine, as).value().job;
  EXPECT_FALSE(accuracy_of(fit.machine, job));
  const double slowest = slowest_of(job.ranks, fit.machine.rank_spread);
  job.forward_ns = std::llround(fit.forward_ms * slowest * 1e6);
  job.backward_ns = std::llround(fit.backward_ms * slowest * 1e6);
  EXPECT_TRUE(accuracy_of(fit.machine, job));
  EXPECT_GE(accuracy_of(fit.machine, job)->step_error, kLeastError);
}

// A file keeps the explanations, so that a prediction elsewhere is as wide as they are apart there.
TEST(RowFit, AlternativesGiveTheFittedRowAndPartElsewhere) {
  const RunPlan plan = resnet("resnet50");
  const auto fit = fit_row(plan, machine(), published("resnet50")).value();
  ASSERT_FALSE(fit.machine.alternatives.empty());
  MachineModel scaled = fit.machine;
  const double emulated_ms = plan.layer_times.empty() ? 0 : fit.backward_ms;
  double backward_ms = 0;
  for (const LayerTime& layer : plan.layer_times) backward_ms += layer.backward_ms;
  ASSERT_GT(backward_ms, 0);
  const RunPlan fitted = with_compute(plan, emulated_ms / backward_ms, &scaled);
  const auto off = [&](int64_t ranks, double cap_mb) {
    SimulatedAs as;
    as.ranks = ranks;
    as.cap_mb = cap_mb;
    return steps_of_alternatives(fitted, fit.machine, as).value();
  };
  EXPECT_LE(widest(off(2, 25)), kLeastError);  // the row that was fitted
  EXPECT_GT(widest(off(64, 25)), kLeastError);
  EXPECT_GT(widest(off(1024, 1)), widest(off(64, 1)));
  EXPECT_LE(widest(off(64, 1), off(64, 1)), kLeastError);
  EXPECT_GT(widest(off(64, 1), off(64, 25)), kLeastError);
}

TEST(RowFit, OneRankSaysNothingOfLinks) {
  const PublishedTable table{
      "made",
      {{1, {}, 100, false, false}, {1, 25.0, 101, true, true}, {8, 25.0, 105, true, false}}};
  const auto fit = fit_row(resnet("resnet50"), *machine_preset("25gbe"), table).value();
  EXPECT_THAT(fit.notes, testing::Contains(testing::HasSubstr("of one rank")));
  MachineModel slow = *machine_preset("25gbe");
  slow.cost.link.beta_fs_per_byte *= 2;
  EXPECT_GE(fit.rows[1].high, fit.rows[1].ms + 10) << "8 ranks wait for half of the bandwidth";
}

TEST(RowFit, ARowThatIsFasterThanComputeIsSaid) {
  const PublishedTable table{"made", {{1, {}, 400, false, false}, {2, 25.0, 390, true, true}}};
  const auto fit = fit_row(resnet("resnet50"), machine(), table).value();
  EXPECT_EQ(fit.explanations.front().excess, Excess::compute);
  EXPECT_NEAR(fit.rows[0].ms, 390, 0.1);
  EXPECT_THAT(fit.notes, testing::Contains(testing::HasSubstr("no more than compute alone")));
}

TEST(RowFit, ARowThatCollectivesAloneExceedIsRefused) {
  MachineModel slow = machine();
  slow.cost.link.beta_fs_per_byte = slow.cost.across.beta_fs_per_byte = fs_per_byte_of(1);
  const PublishedTable table{"made", {{8, 25.0, 100, true, true}}};
  const auto fit = fit_row(resnet("resnet50"), slow, table);
  ASSERT_FALSE(fit);
  EXPECT_THAT(fit.errors().front().message, testing::HasSubstr("its collectives alone"));
}

TEST(RowFit, ARowThatItsCollectivesExceedIsDoubted) {
  const PublishedTable table{"made", {{2, 25.0, 500, true, true}, {8, 25.0, 100, true, false}}};
  const auto fit = fit_row(resnet("resnet50"), *machine_preset("10gbe"), table).value();
  ASSERT_EQ(fit.warnings.size(), 1U);
  EXPECT_THAT(fit.warnings[0].message, testing::HasSubstr("8 ranks takes 100 ms, and its coll"));
}

// One rank sends nothing and waits for nobody.
TEST(RowFit, SyncIsOfSeveralRanks) {
  const RunPlan plan = resnet("resnet50");
  MachineModel waits = machine();
  waits.sync_ns = 7'000'000;
  EXPECT_DOUBLE_EQ(step_ms(plan, waits, 1, 25), step_ms(plan, machine(), 1, 25));
  EXPECT_NEAR(step_ms(plan, waits, 2, 25), step_ms(plan, machine(), 2, 25) + 7, 1e-6);
}

// All wait for the slowest of more ranks, which is slower.
TEST(RowFit, RanksAreSpread) {
  EXPECT_EQ(slowest_of(1, 0.1), 1);
  EXPECT_NEAR(slowest_of(8, 0.1), 1.142, 0.002);  // the expected largest of 8 draws is 1.424
  EXPECT_NEAR(slowest_of(100, 0.1), 1.25, 0.002);
  const RunPlan plan = resnet("resnet50");
  MachineModel spread = machine();
  spread.rank_spread = 0.02;
  EXPECT_DOUBLE_EQ(step_ms(plan, spread, 1, 25), step_ms(plan, machine(), 1, 25));
  EXPECT_GT(step_ms(plan, spread, 8, 25), step_ms(plan, machine(), 8, 25) * 1.02);
  PublishedTable table{"made", {}};
  for (const int64_t ranks : {8, 64, 512})
    table.rows.push_back({ranks, 25.0, step_ms(plan, spread, ranks, 25), true, ranks == 8});
  const auto fit = fit_row(plan, machine(), table).value();
  for (const PredictedRow& row : fit.rows) {
    EXPECT_GE(row.row.ms, row.low * 0.9999) << row.row.ranks;
    EXPECT_LE(row.row.ms, row.high * 1.0001) << row.row.ranks;
  }
  const auto says_so = testing::Contains(testing::HasSubstr("assumed to differ by"));
  EXPECT_THAT(fit.notes, says_so);
  for (const double of_file : {0.02, 0.0}) {
    spread.rank_spread = of_file;
    spread.says_spread = true;
    const auto said = fit_row(plan, spread, table).value();
    EXPECT_EQ(said.machine.rank_spread, of_file);
    EXPECT_THAT(said.notes, testing::Not(says_so));
  }
}

// A row that takes a hundred times as much for a parameter as DDP does is not DDP's hooks.
TEST(RowFit, HooksDoNotExplainEverything) {
  const PublishedTable table{"made", {{1, {}, 300, false, false}, {16, 25.0, 400, true, true}}};
  const auto fit = fit_row(resnet("resnet50"), machine(), table).value();
  EXPECT_FALSE(fit.explanations.empty());
  for (const RowExplanation& one : fit.explanations) EXPECT_NE(one.excess, Excess::reducer);
  EXPECT_LE(fit.machine.parameter_ns, std::llround(kMostParameterUs * 1e3));
}

TEST(RowFit, RowsMayHaveTheirOwnMicroBatches) {
  const RunPlan plan = resnet("resnet50");
  PublishedTable table{"made", {{8, 25.0, 1200, true, true}, {8, 25.0, 600, true, false}}};
  table.rows[0].passes = 4;
  table.rows[1].passes = 2;
  const auto fit = fit_row(plan, machine(), table).value();
  EXPECT_NEAR(fit.rows[1].ms, 600, 6);
  EXPECT_GT(fit.rows[1].ms, 600);  // its one communicated pass is as long
}

TEST(RowFit, EachPartOfTheWorkIsTold) {
  const PublishedTable table{"made", {{4, 25.0, 500, true, true}, {8, 25.0, 500, true, false}}};
  std::vector<std::string> told;
  const auto fit = fit_row(resnet("resnet50"), machine(), table,
                           [&](const std::string& what) { told.push_back(what); });
  ASSERT_TRUE(fit);
  EXPECT_THAT(told, testing::Contains("simulating row 2 of 2"));
}

TEST(RowFit, ACapWhereThereAreNoBucketsIsRefused) {
  const auto file =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/emulated_resnet50.json",
                         {.sets = {R"(/reducer={"kind": "flat"})"}, .seed = {}});
  const PublishedTable table{"made", {{4, 25.0, 500, true, true}}};
  const auto fit = fit_row(make_plans(file.value()).value().front(), machine(), table);
  ASSERT_FALSE(fit);
  EXPECT_THAT(fit.errors().front().message, testing::HasSubstr("no cap"));
}

}  // namespace
}  // namespace lockstep
