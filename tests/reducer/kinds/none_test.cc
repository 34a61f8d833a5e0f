#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

TEST(None, LeavesEveryRankItsOwnGradients) {
  run_ranks({"local", "ring"}, 2, [](int64_t rank, Communicator& communicator) {
    const SmallModel model(static_cast<uint64_t>(rank) * 77), first(0);
    TestProbe probe;
    ReducerOptions options;
    options.kind = "none";
    const auto reducer =
        make_reducer(options, model.parameters, model.buffers, communicator, probe);
    reducer->before_forward(true);
    const at::Tensor loss = shard_loss(model, rank, 1);
    reducer->before_backward({loss});
    loss.backward();
    reducer->after_backward();
    shard_loss(first, rank, 1).backward();  // rank 0's weights have won
    for (size_t i = 0; i < model.parameters.size(); ++i)
      EXPECT_TRUE(model.gradients()[i].equal(first.gradients()[i])) << i;
  });
}

}  // namespace
}  // namespace lockstep
