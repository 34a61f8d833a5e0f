#include "golden/reduction_order.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

// Ones on all ranks but one, which has 2^24: a one added to it alone is lost, two are kept.
std::vector<std::vector<float>> probe(int64_t ranks, int64_t count, int64_t large_rank) {
  std::vector<std::vector<float>> inputs(static_cast<size_t>(ranks),
                                         std::vector<float>(static_cast<size_t>(count), 1.0F));
  inputs[static_cast<size_t>(large_rank)].assign(static_cast<size_t>(count), 16777216.0F);
  return inputs;
}

template <class T>
std::vector<T> sum(const std::string& algorithm, const std::vector<std::vector<T>>& inputs) {
  std::vector<const T*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  sum_in_order<T>(algorithm, pointers, static_cast<int64_t>(out.size()), out.data());
  return out;
}

const char* const kAlgorithms[] = {"ring",         "bcube",      "halving_doubling",
                                   "ring_chunked", "rank_order", "shard_tree"};

TEST(ReductionOrder, SmallIntegersSumExactlyInAnyOrder) {
  for (const char* algorithm : kAlgorithms)
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      for (int64_t count : {1, 2, 7, 255, 256, 257, 5000}) {
        std::vector<std::vector<double>> inputs;
        for (int64_t r = 0; r < ranks; ++r) {
          inputs.emplace_back();
          for (int64_t e = 0; e < count; ++e)
            inputs.back().push_back(static_cast<double>((r + 1) * (e % 17)));
        }
        const std::vector<double> out = sum(algorithm, inputs);
        for (int64_t e = 0; e < count; ++e)
          ASSERT_EQ(out[static_cast<size_t>(e)],
                    static_cast<double>(ranks * (ranks + 1) / 2 * (e % 17)))
              << algorithm << " W=" << ranks << " n=" << count << " e=" << e;
      }
}

// 2^24 and a one that shares its host, then a host of ones; the last host may have a single rank.
TEST(ReductionOrder, HostsAreAddedOneByOneAndThenTogether) {
  EXPECT_EQ(sum("rank_order/2", probe(4, 1, 0))[0], 16777218.0F);
  EXPECT_EQ(sum("rank_order", probe(4, 1, 0))[0], 16777216.0F);
  EXPECT_EQ(sum("rank_order/2", probe(3, 1, 0))[0], 16777216.0F);
  EXPECT_EQ(sum("rank_order/2", probe(3, 1, 2))[0], 16777218.0F);
  EXPECT_EQ(sum("rank_order/4", probe(7, 1, 6))[0], 16777222.0F);
}

TEST(ReductionOrder, OneHostOrHostsOfOneAreTheAlgorithmItself) {
  for (const std::string algorithm : kAlgorithms)
    for (int64_t large = 0; large < 5; ++large) {
      const auto inputs = probe(5, 3000, large);
      EXPECT_EQ(sum(algorithm + "/1", inputs), sum(algorithm, inputs)) << algorithm;
      EXPECT_EQ(sum(algorithm + "/5", inputs), sum(algorithm, inputs)) << algorithm;
    }
}

TEST(ReductionOrder, DepthOfHostsIsThatOfTheLargestAndThatOfTheirSums) {
  EXPECT_EQ(addition_depth("ring/4", 7), 3 + 1);
  EXPECT_EQ(addition_depth("ring/4", 3), 2);
  EXPECT_EQ(addition_depth("halving_doubling/2", 8), 1 + 2);
}

// W = 3: 2^24 first absorbs both ones; last it takes their sum.
TEST(ReductionOrder, RingStartsBehindTheChunkAndDescends) {
  // Chunks of 12 elements on 3 ranks: 2 segments of 2 elements each, so 4 per chunk.
  const auto out = sum("ring", probe(3, 12, 0));
  const float absorbed = 16777216.0F;
  const float kept = 16777218.0F;
  // Chunk 0 adds 2, 1, 0; chunk 1 adds 0, 2, 1; chunk 2 adds 1, 0, 2.
  EXPECT_EQ(out[0], kept);
  EXPECT_EQ(out[3], kept);
  EXPECT_EQ(out[4], absorbed);
  EXPECT_EQ(out[7], absorbed);
  EXPECT_EQ(out[8], absorbed);
  // 15 elements: 6 segments of 3, not 3 of 5.
  const auto odd = sum("ring", probe(3, 15, 0));
  EXPECT_EQ(odd[5], kept);
  EXPECT_EQ(odd[6], absorbed);
}

TEST(ReductionOrder, RingChunkedStartsAtItsRankAndAscends) {
  // 256 elements a chunk, two chunks a rank.
  const auto out = sum("ring_chunked", probe(3, 1536, 0));
  EXPECT_EQ(out[511], 16777216.0F);  // 0, 1, 2
  EXPECT_EQ(out[512], 16777218.0F);  // 1, 2, 0
  EXPECT_EQ(out[1023], 16777218.0F);
  EXPECT_EQ(out[1024], 16777216.0F);  // 2, 0, 1
}

TEST(ReductionOrder, HalvingDoublingMergesFromTheSmallestBlock) {
  // W = 5: ((0+1)+(2+3)) + 4.
  EXPECT_EQ(sum("halving_doubling", probe(5, 1, 4))[0], 16777220.0F);
  EXPECT_EQ(sum("halving_doubling", probe(5, 1, 1))[0], 16777220.0F);
  // W = 7: (tree(0..3) + ((4+5) + 6)).
  EXPECT_EQ(sum("halving_doubling", probe(7, 1, 6))[0], 16777222.0F);
}

TEST(ReductionOrder, BcubeAddsItsOwnPartialFirst) {
  // W = 3 is one group of 3; the owner of element 1 of 3 is rank 1: (1 + 0) + 2.
  const auto out = sum("bcube", probe(3, 3, 2));
  EXPECT_EQ(out[0], 16777218.0F);  // (0 + 1) + 2
  EXPECT_EQ(out[1], 16777218.0F);
  EXPECT_EQ(out[2], 16777216.0F);  // (2 + 0) + 1
}

// What a test of the order can see at all: nothing at W = 2, much from W = 3.
TEST(ReductionOrder, RankOrderIsAnotherOrderFromThreeRanks) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t ranks : {2, 3, 6, 7}) {
    std::vector<std::vector<float>> inputs;
    for (int64_t r = 0; r < ranks; ++r) {
      inputs.emplace_back();
      for (int64_t e = 0; e < 3000; ++e) inputs.back().push_back(normal(random));
    }
    const auto plain = sum("rank_order", inputs);
    for (const char* algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"}) {
      const auto out = sum(algorithm, inputs);
      int64_t differing = 0;
      for (size_t e = 0; e < out.size(); ++e) differing += out[e] != plain[e];
      const bool same_tree = ranks == 2 || (ranks == 3 && algorithm[0] == 'h');
      EXPECT_EQ(differing == 0, same_tree) << algorithm << " W=" << ranks;
    }
  }
}

// The large one loses its own neighbour only; the others are added to each other first.
TEST(ReductionOrder, ShardTreeAddsPairsOfPairs) {
  EXPECT_EQ(sum("shard_tree", probe(3, 1, 2))[0], 16777218.0F);
  EXPECT_EQ(sum("shard_tree", probe(3, 1, 0))[0], 16777216.0F);
  EXPECT_EQ(sum("shard_tree", probe(4, 1, 0))[0], 16777218.0F);
  EXPECT_EQ(sum("shard_tree", probe(6, 1, 0))[0], 16777220.0F);
  EXPECT_EQ(sum("shard_tree", probe(6, 1, 4))[0], 16777220.0F);
  EXPECT_EQ(sum("shard_tree", probe(8, 1, 5))[0], 16777222.0F);
  EXPECT_EQ(sum("shard_tree", probe(8, 1, 5)), sum("halving_doubling", probe(8, 1, 5)));
}

TEST(ReductionOrder, Depth) {
  EXPECT_EQ(addition_depth("shard_tree", 1), 0);
  EXPECT_EQ(addition_depth("shard_tree", 6), 3);
  EXPECT_EQ(addition_depth("shard_tree", 8), 3);
  EXPECT_EQ(addition_depth("ring", 8), 7);
  EXPECT_EQ(addition_depth("ring_chunked", 3), 2);
  EXPECT_EQ(addition_depth("rank_order", 1), 0);
  EXPECT_EQ(addition_depth("bcube", 8), 3);
  EXPECT_EQ(addition_depth("bcube", 6), 3);
  EXPECT_EQ(addition_depth("bcube", 7), 6);
  EXPECT_EQ(addition_depth("halving_doubling", 8), 3);
  EXPECT_EQ(addition_depth("halving_doubling", 5), 3);
  EXPECT_EQ(addition_depth("halving_doubling", 7), 3);
  EXPECT_EQ(addition_depth("halving_doubling", 1), 0);
}

}  // namespace
}  // namespace lockstep
