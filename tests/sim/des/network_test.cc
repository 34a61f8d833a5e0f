// What ranks of a host and hosts of a rack share: NICs, and what is above a rack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/des/machine_model.h"
#include "sim/des/simulate.h"
#include "tests/sim/des/laws.h"
#include "tests/sim/des/random_job.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// 1 GB/s within a host of 4 ranks, 1 MB/s a NIC: times across are whole milliseconds.
CostModel of_hosts(Algorithm algorithm) {
  CostModel cost;
  cost.algorithm = algorithm;
  cost.link = {1000, 1'000'000, 0};
  cost.across = {5000, 1'000'000'000, 0};
  cost.ranks_per_host = 4;
  return cost;
}

TEST(Network, RanksOfAHostShareItsNics) {
  CostModel cost = of_hosts(Algorithm::hierarchical);
  // Two hosts: within 6 us + 6 ms, and four rings of 1 MB, each 10 us + 1 s with a NIC of its own.
  const int64_t inside = 6'006'000, latency = 10'000;
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 8), inside + latency + 1'000'000'000);
  for (const auto& [nics, factor] : {std::pair{1, int64_t{4}}, {2, 2}, {4, 1}, {8, 1}}) {
    cost.nics_per_host = nics;
    EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 8), inside + latency + factor * 1'000'000'000)
        << nics << " NICs";
    EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 4), inside) << "one host";
  }
  // Of a ring one rank of a host sends out of it at a time.
  cost = of_hosts(Algorithm::ring);
  const int64_t ring = all_reduce_ns(cost, 8'000'000, 8);
  cost.nics_per_host = 1;
  EXPECT_EQ(all_reduce_ns(cost, 8'000'000, 8), ring);
  // Of exchanges and all-to-alls all of them do: 4 of 8 parts of 1 MB from each rank.
  EXPECT_EQ(all_to_all_ns(cost, 8'000'000, 8), 3 * (1000 + 1'000'000) + 4 * (5000 + 4'000'000'000));
  EXPECT_EQ(exchange_ns(cost, {4, 8, true}, 8'000'000, 8), 5000 + 4'000'000'000);
  EXPECT_EQ(exchange_ns(cost, {2, 8, true}, 8'000'000, 8), 1000 + 1'000'000) << "within a host";
}

// A ring's one sender of a host at a time has all of its NICs, and whatever sends at once its
// share.
TEST(Network, StripesGoOverAllNicsOfAHost) {
  CostModel cost = of_hosts(Algorithm::ring);
  cost.nics_per_host = 4;
  const int64_t one_nic = all_reduce_ns(cost, 8'000'000, 8);
  EXPECT_EQ(one_nic, 14 * int64_t{1'000'005'000});
  cost.stripes = true;
  EXPECT_EQ(all_reduce_ns(cost, 8'000'000, 8), 14 * int64_t{250'005'000});
  EXPECT_GE(all_reduce_ns(cost, 8'000'000, 8), least_all_reduce_ns(cost, 8'000'000, 8));
  cost.across.beta_fs_per_byte = 2'000'000;  // no faster than the link within, which it goes over
  EXPECT_EQ(all_reduce_ns(cost, 8'000'000, 8), 14 * (5000 + 1'000'000));
  cost = of_hosts(Algorithm::hierarchical);
  cost.nics_per_host = 4;
  const int64_t each = all_reduce_ns(cost, 4'000'000, 8);
  cost.stripes = true;  // four rings at once share four NICs, striped or not
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 8), each);
}

TEST(Network, MessagesThatChangeTheirRailGoWithinTheHostFirst) {
  CostModel cost = of_hosts(Algorithm::ring);
  cost.nics_per_host = 4;
  const int64_t ring = all_reduce_ns(cost, 8'000'000, 8), all = all_to_all_ns(cost, 8'000'000, 8);
  const int64_t near = exchange_ns(cost, {4, 8, true}, 8'000'000, 8);
  cost.rails = true;
  EXPECT_EQ(all_reduce_ns(cost, 8'000'000, 8), ring + 14 * 1000);
  // Of four peers on the other host one is on the same rail.
  EXPECT_EQ(all_to_all_ns(cost, 8'000'000, 8), all + 3 * (1000 + 1'000'000));
  EXPECT_EQ(exchange_ns(cost, {4, 8, true}, 8'000'000, 8), near)
      << "the same place of the next host";
  cost.algorithm = Algorithm::hierarchical;
  CostModel without = cost;
  without.rails = false;
  EXPECT_EQ(all_reduce_ns(cost, 8'000'000, 8), all_reduce_ns(without, 8'000'000, 8));
}

TEST(Network, HostsOfARackShareWhatIsAboveIt) {
  CostModel cost = of_hosts(Algorithm::hierarchical);
  cost.nics_per_host = 4;
  const int64_t free = all_reduce_ns(cost, 4'000'000, 16);
  cost.oversubscription_millis = 4000;
  // One host a rack: four times slower above it; with four a quarter of a rack's NICs is one
  // host's, and only one host of a rack sends out of it in a ring across.
  const int64_t within = 6'006'000 + 6 * 5000;
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 16), within + 4 * (free - within));
  cost.hosts_per_rack = 2;
  EXPECT_EQ(all_reduce_ns(cost, 4'000'000, 16), within + 2 * (free - within));
  EXPECT_LT(all_reduce_ns(cost, 4'000'000, 8), free) << "one rack";
  // All hosts of a rack at once: four times slower, however many they are.
  cost.algorithm = Algorithm::halving_doubling;
  EXPECT_EQ(exchange_ns(cost, {8, 16, true}, 16'000'000, 16), 5000 + 4'000'000'000);
  EXPECT_EQ(exchange_ns(cost, {4, 16, true}, 16'000'000, 16), 5000 + 1'000'000'000) << "a rack";
}

Job drawn_job(uint64_t seed) {
  Job job = random_job(seed);
  Rng rng(seed + 3);
  job.ranks = drawn(rng, 2, 24);
  job.schedule = {};
  job.overlap_slowdown = job.comm_slowdown = 0;
  job.cost.ranks_per_host = drawn(rng, 2, 4);
  return job;
}

TEST(Network, MoreNicsOrLessOversubscriptionIsNeverSlower) {
  int64_t nics_counted = 0, racks_counted = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Job job = drawn_job(seed);
    job.cost.rails =
        false;  // with rails one more NIC is one more place that a message may not reach
    int64_t before = kMostNs;
    for (int64_t nics = 1; nics <= 6; ++nics) {
      job.cost.nics_per_host = nics;
      const int64_t after = total_ns(job);
      ASSERT_LE(after, before) << "seed " << seed << ", " << nics << " NICs";
      nics_counted += after < before && nics > 1 ? 1 : 0;
      before = after;
    }
    before = kMostNs;
    for (const int64_t millis : {8000, 3500, 1000}) {
      job.cost.oversubscription_millis = millis;
      const int64_t after = total_ns(job);
      ASSERT_LE(after, before) << "seed " << seed << ", " << millis;
      racks_counted += after < before && millis < 8000 ? 1 : 0;
      before = after;
    }
  }
  EXPECT_GT(nics_counted, 500);
  EXPECT_GT(racks_counted, 500);
}

// What leaves a rack for the others takes all of what is above it, whatever the algorithm.
TEST(Network, NothingLeavesARackFasterThanWhatIsAboveIt) {
  for (int algorithm = 0; algorithm <= 6; ++algorithm)
    for (const int64_t ranks : {5, 8, 12, 16, 64, 1000})
      for (const int64_t racks_of : {1, 2, 3})
        for (const int64_t nics : {1, 2, 4}) {
          CostModel cost = of_hosts(static_cast<Algorithm>(algorithm));
          cost.nics_per_host = nics;
          cost.hosts_per_rack = racks_of;
          cost.oversubscription_millis = 64'000;
          const int64_t host_ns = 1'000'000 / 4 * 1000 / std::min<int64_t>(nics, 4);
          EXPECT_GE(all_reduce_ns(cost, 250'000, ranks), host_ns) << ranks << " out of a host";
          EXPECT_GE(all_reduce_ns(cost, 250'000, ranks), least_all_reduce_ns(cost, 250'000, ranks));
          if (ranks <= 4 * racks_of) continue;
          EXPECT_GE(all_reduce_ns(cost, 250'000, ranks),
                    int64_t{64} * 250'000'000 / (racks_of * nics))
              << to_word(cost.algorithm) << ", " << ranks << " ranks, " << racks_of << " hosts";
        }
}

Expected<MachineModel> machine_of(const std::string& keys) {
  const std::string path = testing::TempDir() + "network_machine.json";
  std::ofstream(path) << R"({"format": "lockstep_machine", "version": 1)" << keys << "}";
  return read_machine_model(path);
}

// Six links of 250 MB/s a rank, one of them between the first two.
TEST(Network, FewRanksOfAMeshHaveFewLinks) {
  CostModel cost = of_hosts(Algorithm::hierarchical);
  cost.ranks_per_host = 8;
  cost.link.beta_fs_per_byte = 666'000;
  cost.mesh = {{2, 1}, {4, 4}, {8, 6}};
  for (const auto& [ranks, fs] : {std::pair{1, 3'996'000},
                                  {2, 3'996'000},
                                  {3, 999'000},
                                  {4, 999'000},
                                  {5, 666'000},
                                  {8, 666'000},
                                  {24, 666'000}}) {
    const CostModel seen = cost_of_ranks(cost, ranks);
    EXPECT_EQ(seen.link.beta_fs_per_byte, fs) << ranks;
    EXPECT_EQ(seen.across, cost.across) << ranks;
    EXPECT_TRUE(seen.mesh.empty()) << ranks;
  }
  cost.ranks_per_host = 2;
  EXPECT_EQ(cost_of_ranks(cost, 8).link.beta_fs_per_byte, 3'996'000) << "two on each host";
  cost.mesh.clear();
  EXPECT_EQ(cost_of_ranks(cost, 2).link.beta_fs_per_byte, 666'000) << "a switch";
  cost.mesh = {{2, 3}, {4, 3}, {4, 6}};
  EXPECT_EQ(problems_of(cost).size(), 1) << "4 ranks twice";
  cost.mesh = {{2, 3}, {4, 2}};
  EXPECT_EQ(problems_of(cost).size(), 1) << "fewer links";
}

// Nobody said how hosts are joined: not by links that take nothing.
TEST(Network, HostsWithoutLinksOfTheirOwnHaveTheMachines) {
  const MachineModel ethernet = *machine_preset("10gbe");
  EXPECT_EQ(ethernet.cost.across, ethernet.cost.link);
  const MachineModel read =
      machine_of(R"(, "link": {"latency_us": 5, "bandwidth_mb_per_s": 1000}, "ranks_per_host": 2)")
          .value();
  EXPECT_EQ(read.cost.across, read.cost.link);
}

TEST(Network, AMachineFileSaysIt) {
  const auto machine = machine_of(
      R"(, "ranks_per_host": 8, "nics_per_host": 4, "hosts_per_rack": 16, "oversubscription": 2.5)");
  ASSERT_TRUE(machine) << to_text(machine.errors().front());
  EXPECT_EQ(machine.value().cost.nics_per_host, 4);
  const auto again = nlohmann::ordered_json::parse(to_text(machine.value(), nullptr));
  EXPECT_EQ(again["nics_per_host"], 4);
  EXPECT_EQ(again["hosts_per_rack"], 16);
  EXPECT_EQ(again["oversubscription"], 2.5);
  const auto mesh = machine_of(R"(, "ranks_per_host": 8, "mesh_links": [[2, 1], [8, 6]])");
  ASSERT_TRUE(mesh) << to_text(mesh.errors().front());
  EXPECT_EQ(nlohmann::ordered_json::parse(to_text(mesh.value(), nullptr))["mesh_links"].dump(),
            "[[2,1],[8,6]]");
}

TEST(Network, AMachineFileSaysWhoSharesASwitch) {
  const std::string hosts = R"(, "ranks_per_host": 8, "core_mb_per_s": 12000)";
  const auto machine = machine_of(hosts + R"(, "ranks_per_switch": 4)");
  ASSERT_TRUE(machine) << to_text(machine.errors().front());
  EXPECT_EQ(machine.value().cost.ranks_per_switch, 4);
  const auto again = nlohmann::ordered_json::parse(to_text(machine.value(), nullptr));
  EXPECT_EQ(again["ranks_per_switch"], 4);
  EXPECT_FALSE(again.contains("cores_per_host"));
  const auto refusal = [](const std::string& keys) {
    const auto refused = machine_of(keys);
    return refused ? "taken" : to_text(refused.errors().front());
  };
  EXPECT_THAT(refusal(hosts + R"(, "ranks_per_switch": 4, "cores_per_host": 1)"),
              HasSubstr("both say who shares core_mb_per_s"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "ranks_per_switch": 4)"),
              HasSubstr("core_mb_per_s beside it"));
  EXPECT_THAT(refusal(R"(, "core_mb_per_s": 12000, "ranks_per_switch": 4)"),
              HasSubstr("hosts are not told apart"));
}

TEST(Network, WhatAMachineFileWouldSayForNothingIsRefused) {
  const auto refusal = [](const std::string& keys) {
    const auto machine = machine_of(keys);
    return machine ? "taken" : to_text(machine.errors().front());
  };
  EXPECT_THAT(refusal(R"(, "nics_per_host": 2)"), HasSubstr("hosts are not told apart"));
  EXPECT_THAT(refusal(R"(, "mesh_links": [[2, 1]])"), HasSubstr("hosts are not told apart"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "mesh_links": [[2, 1], [2, 2]])"),
              HasSubstr("mesh_links ranks is 2"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "mesh_links": [[2]])"), HasSubstr("mesh_links"));
  EXPECT_THAT(refusal(R"(, "oversubscription": 2)"), HasSubstr("hosts are not told apart"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "hosts_per_rack": 2)"),
              HasSubstr("oversubscription beside it"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "nics_per_host": 2,
                          "tables": [{"ranks": 2, "rows": [[1, 1]]}])"),
              HasSubstr("either this or tables"));
  EXPECT_THAT(refusal(R"(, "stripes": true)"), HasSubstr("hosts are not told apart"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "nics_per_host": 1, "rails": true)"),
              HasSubstr("a host has one NIC"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "rails": true, "stripes": true)"),
              HasSubstr("keep to their rails"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "nics_per_host": 0)"),
              HasSubstr("an integer >= 1"));
  EXPECT_THAT(refusal(R"(, "ranks_per_host": 8, "oversubscription": 0.5)"),
              HasSubstr("a number >= 1"));
  EXPECT_EQ(refusal(R"(, "algorithm": "hierarchical", "oversubscription": 2)"), "taken");
}

// A DGX-1's four ports are an eighth each for its eight GPUs, as the preset says.
TEST(Network, APresetSharesItsPorts) {
  CostModel cost = machine_preset("dgx_v100")->cost;
  cost.algorithm = Algorithm::hierarchical;
  CostModel each = cost;
  each.nics_per_host = 0;
  each.across.beta_fs_per_byte *= 2;
  EXPECT_EQ(all_reduce_ns(cost, 25'000'000, 16), all_reduce_ns(each, 25'000'000, 16));
}

}  // namespace
}  // namespace lockstep
