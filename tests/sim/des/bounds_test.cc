// Nothing is faster than the bytes that each rank and each host has to send, whatever the
// algorithm, the number of ranks, the engine, and how many collectives are under way at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/des/simulate.h"
#include "tests/sim/des/random_job.h"

namespace lockstep {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::ring,
                                     Algorithm::ring_segmented,
                                     Algorithm::halving_doubling,
                                     Algorithm::recursive_doubling,
                                     Algorithm::bcube,
                                     Algorithm::double_binary_tree,
                                     Algorithm::hierarchical};
constexpr int64_t kWorlds[] = {2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 100, 1000, 1024, 10'000, 1'000'000};

// 2(p-1)/p n beta, written down again and not taken from the program.
int64_t least_ns(int64_t ranks, int64_t bytes, int64_t fs_per_byte) {
  const auto fs = static_cast<__int128>(bytes) * fs_per_byte * 2 * (ranks - 1) / ranks;
  return static_cast<int64_t>(fs / 1'000'000);
}

// Of all buckets together; where there are hosts, over the faster kind of link, and what leaves the
// smallest host over those that it has, and out of a rack over what is above it.
int64_t least_ns(const Job& job, const std::vector<BucketWork>& buckets) {
  const CostModel& cost = job.cost;
  const bool hosts = cost.ranks_per_host > 1 || cost.algorithm == Algorithm::hierarchical;
  const int64_t link = cost.link.beta_fs_per_byte, across = cost.across.beta_fs_per_byte;
  const int64_t of_host = cost.nics_per_host == 0 ? cost.ranks_per_host : cost.nics_per_host;
  const int64_t alone = cost.stripes ? across / of_host : across;
  const bool leaves = hosts && job.ranks > cost.ranks_per_host;
  const int64_t rest = job.ranks % cost.ranks_per_host;
  const int64_t nics = cost.nics_per_host == 0 ? cost.ranks_per_host : cost.nics_per_host;
  const int64_t smallest =
      cost.stripes ? nics : std::min(rest == 0 ? cost.ranks_per_host : rest, nics);
  const int64_t rack = cost.hosts_per_rack * cost.ranks_per_host;
  int64_t sum = 0;
  for (const BucketWork& bucket : buckets)
    sum += leaves ? std::max({least_ns(job.ranks, bucket.bytes, std::min(link, alone)),
                              least_ns(2, bucket.bytes, across) / smallest,
                              job.ranks > rack ? least_ns(2, bucket.bytes, across) *
                                                     cost.oversubscription_millis / 1000 /
                                                     (cost.hosts_per_rack * nics)
                                               : 0})
                  : least_ns(job.ranks, bucket.bytes, link);
  return sum;
}

bool is_quick(Engine engine, int64_t ranks) {
  const int64_t most = engine == Engine::events        ? 17
                       : engine == Engine::rounds      ? 100
                       : engine == Engine::closed_form ? 10'000
                                                       : kMostRanks;
  return ranks <= most;
}

void expect_within_bounds(const Job& job, const std::string& what) {
  for (const Engine engine : {Engine::events, Engine::rounds, Engine::closed_form, Engine::classes,
                              Engine::order_statistics}) {
    if (!is_quick(engine, job.ranks) || !why_not(job, engine).empty()) continue;
    const auto run = simulate(job, {engine, 1});
    ASSERT_TRUE(run) << what << ": " << to_text(run.errors().front());
    for (size_t i = 0; i < run.value().steps.size(); ++i)
      ASSERT_GE(run.value().steps[i].duration_ns,
                least_ns(job, i == 0 ? job.first_step : job.settled))
          << what << ", step " << i + 1 << ", " << to_word(engine) << ", "
          << to_word(job.cost.algorithm) << ", " << job.ranks << " ranks, " << job.channels
          << " channels, " << job.cost.ranks_per_host << " a host";
  }
}

Job of_buckets(Algorithm algorithm, int64_t ranks, std::vector<int64_t> bytes) {
  Job job;
  job.ranks = ranks;
  job.steps = 2;
  job.backward_ns = 1000;
  for (const int64_t size : bytes)
    job.settled.push_back({static_cast<int64_t>(job.settled.size()), size, 1000, 0});
  job.first_step = job.settled;
  job.cost.algorithm = algorithm;
  job.cost.link = {2000, 100'000, 0};
  job.cost.across = {5000, 800'000, 0};
  return job;
}

TEST(Bounds, HoldForEveryAlgorithmWorldAndNumberOfChannels) {
  for (const Algorithm algorithm : kAlgorithms)
    for (const int64_t ranks : kWorlds)
      for (const int64_t inside : {1, 3, 8})
        for (const int64_t channels : {1, 2, 3, 64}) {
          Job job = of_buckets(algorithm, ranks, {25'000'000, 1, 33'333'333, 0, 4'000'001});
          job.channels = channels;
          job.cost.ranks_per_host = inside;
          expect_within_bounds(job, "as it is");
          if (testing::Test::HasFatalFailure()) return;
        }
}

// Segments are at most 1 MiB, two a part at least: parts around those edges.
TEST(Bounds, HoldForEverySizeOfSegments) {
  for (const int64_t ranks : {2, 3, 7, 16, 17})
    for (const int64_t part : {1, 2, 1 << 19, 1 << 20, (1 << 20) + 1, 3 << 20})
      for (const int64_t channels : {1, 4}) {
        Job job = of_buckets(Algorithm::ring_segmented, ranks, {part * ranks, part * ranks + 1});
        job.channels = channels;
        expect_within_bounds(job, "segments");
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Bounds, HoldForRandomJobs) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Job job = random_job(seed);
    Rng rng(seed + 5);
    job.channels = drawn(rng, 1, 64);
    expect_within_bounds(job, "seed " + std::to_string(seed));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Four buckets of 25 MB at 1 GB/s and 8 ranks are on the wire for 175 ms, however many at once;
// what many at once hide is latency.
TEST(Bounds, ChannelsHideLatencyAndAddNoBandwidth) {
  Job job = of_buckets(Algorithm::ring, 8, {25'000'000, 25'000'000, 25'000'000, 25'000'000});
  job.cost.link = {1'000'000, 1'000'000, 0};
  const auto longest = [&](int64_t channels) {
    job.channels = channels;
    return simulate(job).value().steps[1].duration_ns;
  };
  EXPECT_EQ(longest(1), 1000 + 4 * (14 * 1'000'000 + 43'750'000));
  EXPECT_EQ(longest(2), 1000 + 14 * 1'000'000 + 4 * 43'750'000);
  EXPECT_EQ(longest(64), longest(2));
}

// A host that is alone with one rank has one link for all of the bytes.
TEST(Bounds, TheSmallestHostDecidesAcross) {
  Job job = of_buckets(Algorithm::hierarchical, 9, {8'000'000});
  job.cost.ranks_per_host = 8;
  job.cost.link = {0, 1000, 0};
  job.cost.across = {0, 1'000'000, 0};
  EXPECT_GE(simulate(job).value().steps[1].duration_ns, 8'000'000);
}

// A flat algorithm over hosts waits for the links between them.
TEST(Bounds, FlatAlgorithmsPayForTheLinksBetweenHosts) {
  for (const Algorithm algorithm : kAlgorithms) {
    Job job = of_buckets(algorithm, 16, {16'000'000});
    job.cost.ranks_per_host = 8;
    const int64_t before = all_reduce_ns(job.cost, 16'000'000, 16);
    job.cost.across.beta_fs_per_byte *= 2;
    EXPECT_GT(all_reduce_ns(job.cost, 16'000'000, 16), before) << to_word(algorithm);
    EXPECT_EQ(all_reduce_ns(job.cost, 16'000'000, 8), [&] {
      CostModel one = job.cost;
      one.ranks_per_host = 8;
      one.across = {};
      return all_reduce_ns(one, 16'000'000, 8);
    }()) << to_word(algorithm);
  }
}

}  // namespace
}  // namespace lockstep
