#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "sim/des/cost.h"
#include "sim/des/job.h"
#include "sim/des/random.h"
#include "sim/des/simulate.h"
#include "tests/sanitized.h"

namespace lockstep {
namespace {

CostModel model_of(Algorithm algorithm) {
  CostModel cost;
  cost.algorithm = algorithm;
  cost.link = {1000, 1'000'000, 0};  // 1 us, 1 GB/s
  return cost;
}

TEST(Cost, ByHand) {
  // 2 (p-1) alpha + 2 (p-1) / p n beta
  EXPECT_EQ(all_reduce_ns(model_of(Algorithm::ring), 4'000'000, 4), 6 * 1000 + 6'000'000);
  EXPECT_EQ(all_reduce_ns(model_of(Algorithm::halving_doubling), 4'000'000, 4),
            4 * 1000 + 6'000'000);
  EXPECT_EQ(all_reduce_ns(model_of(Algorithm::recursive_doubling), 4'000'000, 4),
            2 * (1000 + 4'000'000));
  EXPECT_EQ(all_reduce_ns(model_of(Algorithm::double_binary_tree), 4'000'000, 4),
            4 * 1000 + 8'000'000);
  // Two segments of 1 MiB at most in each of the rounds' parts of 1 MB.
  EXPECT_EQ(all_reduce_ns(model_of(Algorithm::ring_segmented), 4'000'000, 4),
            6 * 2 * 1000 + 6'000'000);
  EXPECT_EQ(segments_of(32 << 20, 4), 8);
}

// (p-1) alpha + (p-1) / p n beta, whatever the algorithm of sums on one kind of link.
TEST(Cost, OfAnExchangeAndAGathering) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::bcube}) {
    CostModel cost = model_of(algorithm);
    EXPECT_EQ(all_to_all_ns(cost, 4'000'000, 4), 3 * 1000 + 3'000'000);
    EXPECT_EQ(all_gather_ns(cost, 4'000'000, 4), 3 * 1000 + 3'000'000);
    cost.link.gamma_fs_per_byte = 1'000'000;  // only the exchange is added
    EXPECT_EQ(all_to_all_ns(cost, 4'000'000, 4), 3 * 1000 + 6'000'000);
    EXPECT_EQ(all_gather_ns(cost, 4'000'000, 4), 3 * 1000 + 3'000'000);
    EXPECT_EQ(all_to_all_ns(cost, 4'000'000, 1) + all_gather_ns(cost, 4'000'000, 1), 0);
  }
  // Of two hosts: one message within, two across; a gathering waits for the slower link in a round.
  CostModel cost = model_of(Algorithm::ring);
  cost.ranks_per_host = 2;
  cost.across = {5000, 10'000'000, 0};
  EXPECT_EQ(all_to_all_ns(cost, 4'000'000, 4), 1000 + 1'000'000 + 2 * (5000 + 10'000'000));
  EXPECT_EQ(all_gather_ns(cost, 4'000'000, 4), 3 * (5000 + 10'000'000));
  EXPECT_GE(all_to_all_ns(cost, 4'000'000, 4), least_exchange_ns(cost, 4'000'000, 4));
}

TEST(Cost, ATableIsOfItsOwnOperation) {
  CostModel cost = model_of(Algorithm::ring);
  cost.tables = {{2, {{1000, 10'000}}},
                 {2, {{1000, 20'000}}, Operation::all_to_all},
                 {0, {{1000, 30'000}}, Operation::all_gather}};
  EXPECT_TRUE(problems_of(cost).empty());
  EXPECT_EQ(all_reduce_ns(cost, 1000, 2), 10'000);
  EXPECT_EQ(all_to_all_ns(cost, 1000, 2), 20'000);
  EXPECT_EQ(all_gather_ns(cost, 1000, 5), 30'000);
  EXPECT_FALSE(problem_with_ranks(cost, 2, Operation::all_to_all));
  EXPECT_EQ(problem_with_ranks(cost, 3, Operation::all_to_all)->message,
            "all_to_all collectives were measured at 2 ranks, not at 3");
  cost.tables.push_back({4, {{1000, 1}}, Operation::all_gather});
  EXPECT_FALSE(problems_of(cost).empty());
}

TEST(Cost, AHierarchyIsARingInTheHostAndOneAcross) {
  CostModel cost = model_of(Algorithm::hierarchical);
  cost.ranks_per_host = 4;
  cost.across = {5000, 10'000'000, 0};
  // In the host 6 us + 6 ms; each part of 1 MB across 2 hosts: 10 us + 10 ms.
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 8), 6'006'000 + 10'010'000);
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 4), 6'006'000);
}

TEST(Cost, AddingCounts) {
  CostModel cost = model_of(Algorithm::ring);
  cost.link.gamma_fs_per_byte = 1'000'000;
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 4), 6 * 1000 + 6'000'000 + 3'000'000);
}

TEST(Cost, ATableIsReadBetweenItsRows) {
  CostModel cost = model_of(Algorithm::ring);
  cost.tables = {{0, {{1000, 10'000}, {3000, 14'000}}}};
  EXPECT_EQ(all_reduce_ns(cost, 500, 4), 10'000);
  EXPECT_EQ(all_reduce_ns(cost, 2000, 4), 12'000);
  EXPECT_EQ(all_reduce_ns(cost, 6000, 4), 28'000);
}

TEST(Cost, ATableIsOfItsOwnWorldSize) {
  CostModel cost = model_of(Algorithm::ring);
  cost.tables = {{2, {{1000, 10'000}}}, {6, {{1000, 30'000}}}};
  EXPECT_TRUE(problems_of(cost).empty());
  EXPECT_EQ(all_reduce_ns(cost, 1000, 2), 10'000);
  EXPECT_EQ(all_reduce_ns(cost, 1000, 6), 30'000);
  EXPECT_FALSE(problem_with_ranks(cost, 6));
  EXPECT_FALSE(problem_with_ranks(cost, 1));
  ASSERT_TRUE(problem_with_ranks(cost, 4));
  EXPECT_EQ(problem_with_ranks(cost, 4)->message,
            "collectives were measured at 2, 6 ranks, not at 4");
  Job job;
  job.ranks = 4;
  job.cost = cost;
  const auto run = simulate(job);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.errors()[0].allowed, "2, 6 ranks, a table of that many, or a machine of links");
}

TEST(Cost, AWorldSizeHasOneTable) {
  CostModel cost;
  cost.tables = {{2, {{1, 1}}}, {2, {{1, 2}}}};
  ASSERT_EQ(problems_of(cost).size(), 1u);
  EXPECT_EQ(problems_of(cost)[0].message, "a second table of 2 ranks");
  cost.tables = {{2, {{1, 1}}}, {0, {{1, 2}}}};
  EXPECT_EQ(problems_of(cost).size(), 1u);
  cost.tables = {{2, {}}};
  EXPECT_EQ(problems_of(cost)[0].message, "table rows is 0");
}

TEST(Cost, MoreRanksThanCoresShareThem) {
  CostModel cost = model_of(Algorithm::ring);
  cost.core_fs_per_byte = 1'000'000;
  cost.cores_per_host = 2;
  cost.ranks_per_host = 4;
  const int64_t alone = all_reduce_ns(cost, 1'000'000, 2);
  EXPECT_EQ(alone, 2 * 1000 + 1'000'000);
  EXPECT_EQ(all_reduce_ns(cost, 1'000'000, 4), 6 * 1000 + 3'000'000);
}

// Two switches of two ranks: four ranks share as two do, and a host of one switch shares by four.
TEST(Cost, RanksBelowASwitchShareItsLink) {
  CostModel cost = model_of(Algorithm::ring);
  cost.core_fs_per_byte = 1'000'000;
  cost.ranks_per_switch = 2;
  cost.ranks_per_host = 4;
  EXPECT_EQ(all_reduce_ns(cost, 1'000'000, 2), 2 * 1000 + 2'000'000);
  EXPECT_EQ(all_reduce_ns(cost, 1'000'000, 4), 6 * 1000 + 3'000'000);
  cost.ranks_per_switch = 4;
  EXPECT_EQ(all_reduce_ns(cost, 1'000'000, 2), 2 * 1000 + 2'000'000);
  EXPECT_EQ(all_reduce_ns(cost, 1'000'000, 4), 6 * 1000 + 6'000'000);
  CostModel host = cost;
  host.ranks_per_switch = 0;
  host.cores_per_host = 1;
  EXPECT_EQ(all_reduce_ns(host, 1'000'000, 4), all_reduce_ns(cost, 1'000'000, 4)) << "one switch";
  EXPECT_TRUE(shares_cores(cost));
  EXPECT_TRUE(shares_cores(host));
  cost.ranks_per_switch = 1;
  EXPECT_FALSE(shares_cores(cost)) << "a switch for each rank";
}

TEST(Cost, WhatIsOutOfRangeIsNamed) {
  CostModel cost;
  cost.link.alpha_ns = -1;
  cost.tables = {{0, {{10, 5}, {10, 6}}}};
  const InputErrors problems = problems_of(cost);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].message, "link.alpha_ns is -1");
  EXPECT_EQ(problems[1].message, "table bytes is 10");
  EXPECT_FALSE(algorithm_of("rign"));
}

TEST(Cost, ARunThatOverflowsItsNanosecondsIsRefused) {
  Job job;
  job.steps = kMostSteps;
  job.backward_ns = 1'000'000'000'000'000;
  const auto run = simulate(job);
  ASSERT_FALSE(run);
  EXPECT_NE(run.errors()[0].message.find("1152921504606846976 ns"), std::string::npos);
  job.steps = 0;
  EXPECT_EQ(simulate(job).errors()[0].message, "steps is 0");
}

// Salmon et al., known answers of philox2x32 with 10 rounds.
TEST(Random, IsPhilox) {
  const PhiloxBlock zero = philox2x32(0, 0, 0);
  EXPECT_EQ(zero.first, 0xff1dae59u);
  EXPECT_EQ(zero.second, 0x6cd10df2u);
  const PhiloxBlock ones = philox2x32(0xffffffff, 0xffffffff, 0xffffffff);
  EXPECT_EQ(ones.first, 0x2c3f628bu);
  EXPECT_EQ(ones.second, 0xab4fd7adu);
}

TEST(Random, ARangeIsWhatItsRanksAre) {
  for (int64_t step = 0; step < 50; ++step) {
    const RankStream stream(7, step, 3);
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 70}, {2, 333}, {5, 1000}}) {
      RankStream::Range range{UINT32_MAX, 0};
      for (int64_t rank = begin; rank < end; ++rank)
        range = {std::min(range.least, stream.at(rank)), std::max(range.largest, stream.at(rank))};
      EXPECT_EQ(stream.range(begin, end).least, range.least);
      EXPECT_EQ(stream.range(begin, end).largest, range.largest);
    }
  }
}

TEST(Noise, QuantilesAreThoseOfTheNormalDistribution) {
  EXPECT_DOUBLE_EQ(normal_quantile(0.5), 0);
  for (const double z : {-6.0, -3.0, -1.0, -0.1, 0.3, 2.0, 5.0})
    EXPECT_NEAR(normal_quantile(0.5 * std::erfc(-z / std::sqrt(2.0))), z,
                1e-9 + std::fabs(z) * 1e-9)
        << z;
}

TEST(Noise, FactorsNeverFallAsTheNumberRises) {
  for (const Distribution distribution : {Distribution::normal, Distribution::uniform,
                                          Distribution::lognormal, Distribution::exponential}) {
    const Noise noise{distribution, 0.3, false};
    int64_t last = 0;
    for (uint64_t bits = 0; bits < 0x1'0000'0000; bits += 99'991) {
      const int64_t factor = factor_at(noise, unit_of(static_cast<uint32_t>(bits)));
      ASSERT_GE(factor, last);
      last = factor;
    }
  }
}

TEST(Noise, WordsAreReadOrRefused) {
  EXPECT_EQ(noise_of("normal:0.02").value(), (Noise{Distribution::normal, 0.02, false}));
  EXPECT_EQ(noise_of("lognormal:1,bucket").value(), (Noise{Distribution::lognormal, 1, true}));
  EXPECT_EQ(noise_of("none").value(), Noise{});
  for (const char* words : {"", "normal", "normal:", "normal:x", "normal:-1", "normal:11",
                            "gauss:1", "normal:0.1,rank", "normal:0.1x", "none:1"})
    EXPECT_FALSE(noise_of(words)) << words;
}

// 55 ms steps in which each rank stalls a second with probability p: 0.055 + 1 - (1 - p)^N s. Few
// steps are as far from it as chance is; LOCKSTEP_STALLS=full: so many that it is 0.5 % at most.
TEST(Stalls, TakeAsLongAsTheFormulaSays) {
  const bool full = std::getenv("LOCKSTEP_STALLS") != nullptr;
  const int64_t steps = full ? 2'700'000 : tries(60'000);
  for (const int64_t ranks : {1, 4, 16, 64})
    for (const double p : {0.01, 0.02}) {
      Job job;
      job.ranks = ranks;
      job.steps = steps;
      job.backward_ns = 55'000'000;
      job.first_step = job.settled = {{0, 1000, 55'000'000, 0}};
      for (int64_t rank = 0; rank < ranks; ++rank) job.schedule.touched.push_back(rank);
      job.schedule.at = [&](int64_t rank, int64_t step) {
        RankEvents events;
        const bool stalls = unit_of(RankStream(1, step, 77).at(rank)) < p;
        events.backward_ns = stalls ? 1'000'000'000 : 0;
        return events;
      };
      const auto run = simulate(job, {Engine::closed_form, 1}).value();
      const double mean_s =
          static_cast<double>(run.steps.back().end_ns) * 1e-9 / static_cast<double>(steps);
      const double q = 1 - std::pow(1 - p, static_cast<double>(ranks));
      const double chance_s = 4 * std::sqrt(q * (1 - q) / static_cast<double>(steps));
      EXPECT_NEAR(mean_s, 0.055 + q, std::max(0.005 * (0.055 + q), full ? 0 : chance_s));
    }
}

}  // namespace
}  // namespace lockstep
