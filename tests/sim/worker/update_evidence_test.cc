#include "sim/worker/update_evidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace lockstep {
namespace {

// A gradient and a weight of four floats, their momentum and the count of skipped steps; two
// ranks. Elements: gradient golden = mean of both shards, clipped to 0.5.
class UpdateEvidence : public testing::Test {
 protected:
  UpdateEvidence() {
    add(StateKind::gradient, "w", "float32", 4, 16);
    add(StateKind::parameter, "w", "float32", 4, 16);
    add(StateKind::optimizer_state, "w.momentum_buffer", "float32", 4, 16);
    layout.presence_offset = 256;
    layout.bytes = 320;
    before.assign(320, std::byte{0});
    golden = before;
    shards.assign(2 * 64, std::byte{0});
    for (int64_t i = 0; i < 4; ++i) {
      put(before, 1, i, 1.0F + static_cast<float>(i));
      put(golden, 0, i, std::clamp((share(0, i) + share(1, i)) / 2, -0.5F, 0.5F));
      put(golden, 1, i, 1.0F + static_cast<float>(i) - 0.01F * static_cast<float>(i + 1));
      for (int64_t rank = 0; rank < 2; ++rank) {
        const float value = share(rank, i);
        std::memcpy(shards.data() + rank * 64 + i * 4, &value, 4);
      }
    }
    run = golden;
    clipping.kind = "value";
    clipping.options.set("max_value", 0.5);
  }

  void add(StateKind kind, const char* name, const char* dtype, int64_t numel, int64_t bytes) {
    layout.entries.push_back(
        {kind, name, 0, dtype, numel, bytes, static_cast<int64_t>(layout.entries.size()) * 64});
  }
  static float share(int64_t rank, int64_t i) {
    return rank == 0 ? 0.4F * static_cast<float>(i) : -0.2F;
  }
  void put(std::vector<std::byte>& state, int64_t entry, int64_t i, float value) const {
    std::memcpy(state.data() + entry * 64 + i * 4, &value, 4);
  }
  float get(const std::vector<std::byte>& state, int64_t entry, int64_t i) const {
    float value;
    std::memcpy(&value, state.data() + entry * 64 + i * 4, 4);
    return value;
  }

  MismatchEvidence evidence() const {
    MismatchContext context;
    context.step = 2;
    context.world_size = 2;
    context.layout = &layout;
    context.run = run.data();
    context.golden = golden.data();
    context.before = before.data();
    context.clipping = &clipping;
    context.shards = shards.data();
    context.shard_bytes = 64;
    MismatchEvidence found;
    describe_update(context, &found);
    return found;
  }

  StateLayout layout;
  Part clipping;
  std::vector<std::byte> before, run, golden, shards;
};

TEST_F(UpdateEvidence, ClippedByEachRankOrNotAtAll) {
  EXPECT_EQ(evidence().clipping, "");
  for (int64_t i = 0; i < 4; ++i) put(run, 0, i, (share(0, i) + share(1, i)) / 2);
  put(golden, 0, 3, 0.25F);  // another value than the average: else nothing was clipped here
  EXPECT_EQ(evidence().clipping, "absent");
  for (int64_t i = 0; i < 4; ++i) put(run, 0, i, (std::min(share(0, i), 0.5F) + share(1, i)) / 2);
  EXPECT_EQ(evidence().clipping, "before_sum");
  put(run, 0, 2, 7);
  EXPECT_EQ(evidence().clipping, "");
}

TEST_F(UpdateEvidence, ClippedByNorm) {
  clipping.kind = "norm";
  clipping.options.set("max_norm", 0.3);
  clipping.options.set("norm_type", std::string("inf"));
  // Largest elements of the shards: 1.2 and 0.2. Only the first is scaled.
  for (int64_t i = 0; i < 4; ++i) put(run, 0, i, (share(0, i) * 0.25F + share(1, i)) / 2);
  EXPECT_EQ(evidence().clipping, "before_sum");
}

TEST_F(UpdateEvidence, RoundingIsNoClipping) {
  for (int64_t i = 0; i < 4; ++i) {
    const float mean = (share(0, i) + share(1, i)) / 2;
    put(golden, 0, i, mean);
    put(run, 0, i, mean * 1.0000001F);
  }
  EXPECT_EQ(evidence().clipping, "");
}

TEST_F(UpdateEvidence, WeightsMovedTwiceAsFar) {
  for (int64_t i = 0; i < 4; ++i) put(run, 1, i, 2 * get(golden, 1, i) - get(before, 1, i));
  EXPECT_TRUE(evidence().update_known);
  EXPECT_NEAR(evidence().update_ratio, 2, 1e-3);
  put(run, 2, 0, 1);  // the momentum differs too: no mere learning rate
  EXPECT_FALSE(evidence().update_known);
}

TEST_F(UpdateEvidence, WeightsThatDidNotMoveOrMovedOtherwise) {
  for (int64_t i = 0; i < 4; ++i) put(run, 1, i, get(before, 1, i));
  EXPECT_TRUE(evidence().update_known);
  EXPECT_NEAR(evidence().update_ratio, 0, 1e-9);
  put(run, 1, 3, 9);
  EXPECT_FALSE(evidence().update_known);
  run = golden;
  put(run, 1, 0, get(golden, 1, 0) * 1.0000002F);  // rounding
  EXPECT_FALSE(evidence().update_known);
}

TEST_F(UpdateEvidence, WeightsThatStayedWhileOthersMoved) {
  EXPECT_TRUE(evidence().weights_kept.empty());
  EXPECT_TRUE(evidence().weights_moved);
  for (int64_t i = 0; i < 4; ++i) put(run, 1, i, get(before, 1, i));
  EXPECT_EQ(evidence().weights_kept, std::vector<std::string>{"w"});
  EXPECT_FALSE(evidence().weights_moved);  // there is no other
  put(run, 2, 0, 1);                       // whatever the momentum is
  EXPECT_EQ(evidence().weights_kept, std::vector<std::string>{"w"});
  put(run, 0, 0, 9);  // the gradient says why
  EXPECT_TRUE(evidence().weights_kept.empty());
}

TEST_F(UpdateEvidence, SkippedStepsAreRead) {
  EXPECT_EQ(evidence().skipped_run, -1);
  add(StateKind::optimizer_state, "w.skipped_steps", "int64", 1, 8);
  const int64_t one = 1;
  std::memcpy(golden.data() + 3 * 64, &one, 8);
  EXPECT_EQ(evidence().skipped_run, 0);
  EXPECT_EQ(evidence().skipped_golden, 1);
}

}  // namespace
}  // namespace lockstep
