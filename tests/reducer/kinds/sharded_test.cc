#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "reducer/kinds/sharded.h"
#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

// By rank: the gradients after one step of a sharded reducer with small buckets.
std::vector<std::vector<at::Tensor>> gradients_of_ranks(const ReducerOptions& options,
                                                        int64_t ranks) {
  std::vector<std::vector<at::Tensor>> gradients(static_cast<size_t>(ranks));
  run_ranks({"local", "ring"}, ranks, [&](int64_t rank, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    const auto reducer =
        make_reducer(options, model.parameters, model.buffers, communicator, probe);
    reducer->before_forward(true);
    const at::Tensor loss = shard_loss(model, rank, 1);
    reducer->before_backward({loss});
    loss.backward();
    reducer->after_backward();
    gradients[static_cast<size_t>(rank)] = model.gradients();
  });
  return gradients;
}

std::vector<at::Tensor> sharded_averages(int64_t ranks) {
  std::vector<at::Tensor> sums;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const SmallModel model(0);
    shard_loss(model, rank, 1).backward();
    for (const at::Tensor& gradient : model.gradients())
      if (rank == 0) sums.push_back(at::zeros_like(gradient));
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i].add_(model.gradients()[i] / static_cast<double>(ranks));
  }
  return sums;
}

TEST(Sharded, LeavesTheAverageInOwnElementsAndZeroInThoseOfOthers) {
  ReducerOptions options;
  options.kind = "sharded";
  options.first_bucket_bytes = 100;
  options.bucket_cap_bytes = 300;
  for (const int64_t ranks : {1, 3, 6}) {
    const auto gradients = gradients_of_ranks(options, ranks);
    const auto expected = sharded_averages(ranks);
    for (const auto& bucket : bucket_shards_of(options, SmallModel(0).parameters, ranks)) {
      for (const OptimizerShard& piece : bucket) {
        const auto p = static_cast<size_t>(piece.parameter);
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const at::Tensor found = elements_of(piece, gradients[static_cast<size_t>(rank)][p]);
          const at::Tensor due = elements_of(piece, expected[p]) * (rank == piece.owner ? 1 : 0);
          EXPECT_TRUE(at::allclose(found, due, 1e-5, 1e-7))
              << ranks << " ranks: rank " << rank << ", parameter " << p << " from " << piece.begin;
        }
      }
    }
  }
}

}  // namespace

}  // namespace lockstep
