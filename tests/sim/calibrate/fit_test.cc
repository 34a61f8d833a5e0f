#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

#include "sim/calibrate/fit.h"

namespace lockstep {
namespace {

// As a ring of these numbers takes, each size with a little scatter.
RunSamples made_run(int64_t ranks, std::vector<int64_t> sizes, double alpha_ns, double beta,
                    int64_t cores) {
  RunSamples run;
  run.run = "made";
  run.emulated = true;
  const auto p = static_cast<double>(ranks);
  const double shared = std::max(1.0, p / static_cast<double>(cores));
  for (const int64_t bytes : sizes)
    for (const double scatter : {0.99, 1.0, 1.0, 1.0, 1.02})
      run.collectives.push_back(
          {ranks, bytes,
           scatter * (2 * (p - 1) * alpha_ns +
                      2 * (p - 1) / p * static_cast<double>(bytes) * beta * shared)});
  run.load_ns = {1000, 2000, 3000};
  run.finish_ns = {5000};
  run.late_ns = {-10, -10, 700, 800, 900};
  return run;
}

TEST(Fit, FindsWhatTheRunsWereMadeOf) {
  const auto fit = fit_machine({made_run(2, {1000, 100'000, 5'000'000}, 40'000, 0.8, 2)}, 2);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit.value().latency_us.value, 40, 0.1);
  EXPECT_NEAR(fit.value().bandwidth_mb_per_s.value, 1250, 2);
  EXPECT_LE(fit.value().latency_us.low, 40.1);
  EXPECT_GE(fit.value().latency_us.high, 39.9);
  EXPECT_LT(fit.value().largest_error, 0.001);
  const MachineModel& machine = fit.value().machine;
  EXPECT_EQ(machine.load_ns, 2000);
  EXPECT_EQ(machine.optimizer_ns, 5000);
  EXPECT_EQ(machine.launch_ns, 700);
  EXPECT_EQ(machine.bucket_ns, 0);
}

// One size is no line: were all of it latency, buckets of any size would take as long.
TEST(Fit, BucketsOfOneSizeTakeTimeForTheirBytes) {
  const Fit fit = fit_machine({made_run(2, {1'000'000}, 40'000, 0.8, 2)}, 2).value();
  EXPECT_TRUE(fit.latency_assumed);
  EXPECT_TRUE(as_json(fit)["latency_us"].contains("unknown"));
  CostModel cost = fit.machine.cost;
  cost.algorithm = Algorithm::ring;
  EXPECT_NEAR(static_cast<double>(all_reduce_ns(cost, 1'000'000, 2)), 880'000, 1'000);
  EXPECT_NEAR(static_cast<double>(all_reduce_ns(cost, 10'000'000, 2)), 7'720'000, 10'000);
  EXPECT_FALSE(
      fit_machine({made_run(2, {1'000, 1'000'000}, 40'000, 0.8, 2)}, 2).value().latency_assumed);
}

// Exchanges and gatherings are half of a ring's all-reduce, on the same link.
TEST(Fit, TellsOperationsApart) {
  RunSamples run = made_run(2, {1000, 5'000'000}, 40'000, 0.8, 2);
  for (CollectiveSample& sample : run.collectives) {
    sample.operation = sample.bytes == 1000 ? Operation::all_to_all : Operation::all_gather;
    sample.ns /= 2;
  }
  const RunSamples sums = made_run(4, {1000, 5'000'000}, 40'000, 0.8, 2);
  const auto fit = fit_machine({run, sums}, 2).value();
  EXPECT_NEAR(fit.latency_us.value, 40, 0.1);
  EXPECT_NEAR(fit.bandwidth_mb_per_s.value, 1250, 2);
  ASSERT_EQ(fit.sizes.size(), 4u);
  EXPECT_LT(fit.largest_error, 0.001);
  CostModel cost = fit.machine.cost;
  for (const CollectiveSample& sample : run.collectives)
    EXPECT_NEAR(
        static_cast<double>(collective_ns(cost, sample.operation, sample.bytes, 2)) / sample.ns, 1,
        0.03);
}

// Fitted on two ranks that have a core each, four that share two cores come out right.
TEST(Fit, HoldsForOtherWorldSizes) {
  const auto fit = fit_machine({made_run(2, {1000, 5'000'000}, 40'000, 0.8, 2)}, 2).value();
  CostModel cost = fit.machine.cost;
  cost.algorithm = Algorithm::ring;
  for (const int64_t ranks : {3, 4, 7}) {
    const RunSamples real = made_run(ranks, {1000, 5'000'000}, 40'000, 0.8, 2);
    for (const CollectiveSample& sample : real.collectives)
      EXPECT_NEAR(static_cast<double>(all_reduce_ns(cost, sample.bytes, ranks)) / sample.ns, 1,
                  0.03);
  }
}

TEST(Fit, AMachineFileIsReadBack) {
  auto fit = fit_machine({made_run(3, {1000, 5'000'000}, 40'000, 0.8, 2)}, 2).value();
  fit.machine.cost.tables = {{3, {{1000, 2000}}}, {3, {{1000, 3000}}, Operation::all_to_all}};
  const std::string path = testing::TempDir() + "machine.json";
  std::ofstream(path) << to_text(fit.machine, as_json(fit));
  const auto read = read_machine_model(path);
  ASSERT_TRUE(read) << to_text(read.errors().front());
  EXPECT_EQ(read.value().cost.link, fit.machine.cost.link);
  EXPECT_NEAR(static_cast<double>(read.value().cost.core_fs_per_byte),
              static_cast<double>(fit.machine.cost.core_fs_per_byte), 1);
  EXPECT_EQ(read.value().launch_ns, fit.machine.launch_ns);
  EXPECT_EQ(read.value().cost.tables, fit.machine.cost.tables);
  EXPECT_EQ(read.value().fitted_on, fit.machine.fitted_on);
  std::filesystem::remove(path);
}

TEST(Fit, NothingToFitIsSaid) {
  EXPECT_FALSE(fit_machine({RunSamples{}}, 2));
  EXPECT_FALSE(fit_machine({made_run(1, {1000}, 1, 1, 2)}, 2));
}

TEST(MachineFile, IsCheckedWithPlaceAndRange) {
  const std::string path = testing::TempDir() + "broken_machine.json";
  std::ofstream(path) << "{\"format\": \"lockstep_machine\", \"version\": 1,\n"
                         "  \"link\": {\"latency_us\": -1, \"bandwith_mb_per_s\": 3},\n"
                         "  \"noise\": \"gauss\"}";
  const auto read = read_machine_model(path);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.errors()[0].line, 2);
  EXPECT_NE(to_text(read.errors()[0]).find("latency_us"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace

}  // namespace lockstep
