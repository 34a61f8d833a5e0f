#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/data/samplers/distributed.h>

#include "scenarios/split.h"

namespace lockstep {
namespace {

TEST(Samplers, ThePermutationIsLibTorchs) {
  for (const int64_t count : {1, 2, 41, 1000})
    for (const uint64_t seed :
         {uint64_t{0}, uint64_t{7}, uint64_t{4294967295}, uint64_t{1} << 40}) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
      const at::Tensor theirs = at::randperm(count, generator, at::TensorOptions(at::kLong));
      const std::vector<int64_t> ours = random_permutation(count, seed);
      EXPECT_TRUE(theirs.equal(at::tensor(ours, at::kLong))) << count << " " << seed;
    }
}

template <class Sampler>
DealtRows dealt(int64_t samples, int64_t world_size, bool allow_duplicates, size_t epoch) {
  DealtRows rows;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    Sampler sampler(static_cast<size_t>(samples), static_cast<size_t>(world_size),
                    static_cast<size_t>(rank), allow_duplicates);
    sampler.set_epoch(epoch);
    sampler.reset();
    rows.emplace_back();
    while (const auto batch = sampler.next(4))
      for (const size_t index : *batch) rows.back().push_back(static_cast<int64_t>(index));
  }
  return rows;
}

TEST(Samplers, BlocksAreThoseOfLibTorchsDistributedSamplers) {
  using torch::data::samplers::DistributedRandomSampler;
  using torch::data::samplers::DistributedSequentialSampler;
  for (const int64_t world_size : {1, 3, 4})
    for (const int64_t samples : {12, 26})
      for (const bool duplicates : {true, false})
        for (const size_t epoch : {0, 1, 5}) {
          const auto ours = [&](bool shuffle) {
            return deal_in_blocks(shuffle, duplicates, samples, world_size,
                                  static_cast<int64_t>(epoch));
          };
          EXPECT_EQ(ours(true),
                    dealt<DistributedRandomSampler>(samples, world_size, duplicates, epoch));
          EXPECT_EQ(ours(false),
                    dealt<DistributedSequentialSampler>(samples, world_size, duplicates, epoch));
        }
}

}  // namespace
}  // namespace lockstep
