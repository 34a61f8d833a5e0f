#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "golden/half_types.h"
#include "sim/worker/diagnose.h"

namespace lockstep {
namespace {

// Two gradients of four floats in buckets 1 and 0, two weights behind them; three ranks.
class Diagnose : public testing::Test {
 protected:
  static constexpr int64_t kRanks = 3;

  Diagnose() {
    for (int64_t i = 0; i < 4; ++i) {
      const bool gradient = i < 2;
      layout.entries.push_back({gradient ? StateKind::gradient : StateKind::parameter,
                                i % 2 == 0 ? "fc1.weight" : "fc2.weight", i % 2, "float32", 4, 16,
                                i * 64});
    }
    layout.presence_offset = 256;
    layout.bytes = 320;
    golden.assign(320, std::byte{0});
    for (int64_t entry = 0; entry < 4; ++entry)
      for (int64_t i = 0; i < 4; ++i) put(golden, entry, i, 0.1F * (entry + 1) + 0.3F * i);
    shards.assign(kRanks * 128, std::byte{0});
    for (int64_t rank = 0; rank < kRanks; ++rank)
      for (int64_t entry = 0; entry < 2; ++entry)
        for (int64_t i = 0; i < 4; ++i) {
          const float value = 1.0F + rank * 0.7F + entry * i;
          std::memcpy(shards.data() + rank * 128 + entry * 64 + i * 4, &value, 4);
        }
    run = golden;
    local.assign(shards.begin() + 128, shards.begin() + 256);  // as rank 1
  }

  void put(std::vector<std::byte>& state, int64_t entry, int64_t i, float value) {
    std::memcpy(state.data() + layout.entries[entry].offset + i * 4, &value, 4);
  }
  float get(const std::vector<std::byte>& state, int64_t entry, int64_t i) {
    float value;
    std::memcpy(&value, state.data() + layout.entries[entry].offset + i * 4, 4);
    return value;
  }

  MismatchEvidence evidence() {
    MismatchContext context;
    context.lane = Lane::replay;
    context.step = 2;
    context.rank = 1;
    context.world_size = kRanks;
    context.layout = &layout;
    context.run = run.data();
    context.golden = golden.data();
    context.local = local.data();
    context.shards = shards.data();
    context.shard_bytes = 128;
    context.bucket_of = [](int64_t parameter) { return 1 - parameter; };
    context.shape_of = [](int64_t) { return std::vector<int64_t>{2, 2}; };
    const auto difference = first_bit_difference(layout, run.data(), golden.data());
    EXPECT_TRUE(difference.has_value());
    return diagnose(context, *difference);
  }

  StateLayout layout;
  std::vector<std::byte> run, golden, shards, local;
};

TEST_F(Diagnose, EachElementOneRanksOwn) {
  for (int64_t i = 0; i < 4; ++i) {
    float own;  // the first two elements of rank 0, the others of rank 2
    std::memcpy(&own, shards.data() + (i < 2 ? 0 : 2) * 128 + i * 4, 4);
    put(run, 0, i, own / kRanks);
  }
  EXPECT_TRUE(evidence().single_contributions);
  EXPECT_FALSE(evidence().own_contribution);
  put(run, 0, 3, 9);
  EXPECT_FALSE(evidence().single_contributions);
}

TEST_F(Diagnose, OneRatioEverywhereIsMeasured) {
  for (int64_t entry = 0; entry < 2; ++entry)
    for (int64_t i = 0; i < 4; ++i) put(run, entry, i, 0.75F * get(golden, entry, i));
  const MismatchEvidence found = evidence();
  EXPECT_TRUE(found.one_ratio);
  EXPECT_NEAR(found.ratio, 0.75, 1e-6);
  EXPECT_EQ(found.gradients_wrong, 2);
  EXPECT_EQ(found.buckets_wrong, (std::vector<int64_t>{0, 1}));
  EXPECT_FALSE(found.own_contribution);
  EXPECT_TRUE(found.local_known);
  EXPECT_FALSE(found.local_wrong);
}

TEST_F(Diagnose, UnreducedBucketIsOwnContribution) {
  for (int64_t i = 0; i < 4; ++i) {
    float own;
    std::memcpy(&own, local.data() + i * 4, 4);
    put(run, 0, i, own / kRanks);
  }
  const MismatchEvidence found = evidence();
  EXPECT_TRUE(found.own_contribution);
  EXPECT_EQ(found.buckets_wrong, std::vector<int64_t>{1});
  EXPECT_EQ(found.tensor, "fc1.weight");
  EXPECT_EQ(found.bucket, 1);
  EXPECT_EQ(found.element, (std::vector<int64_t>{0, 0}));
}

TEST_F(Diagnose, UnsynchronizedGradientIsOwnAndUndivided) {
  std::copy(local.begin(), local.begin() + 16, run.begin());
  const MismatchEvidence found = evidence();
  EXPECT_TRUE(found.own_undivided);
  EXPECT_FALSE(found.own_contribution);
}

TEST_F(Diagnose, OwnGradientsOnTopAreMeasured) {
  for (int64_t i = 0; i < 4; ++i) {
    float own;
    std::memcpy(&own, local.data() + i * 4, 4);
    put(run, 0, i, get(golden, 0, i) + 0.5F * own);
  }
  EXPECT_NEAR(evidence().own_added, 0.5, 1e-4);
  put(run, 0, 1, get(run, 0, 1) + 0.01F);
  EXPECT_EQ(evidence().own_added, 0);
}

TEST_F(Diagnose, FewerSignificantBitsThanTheGoldenRunsAreCounted) {
  for (int64_t i = 0; i < 4; ++i) {
    put(golden, 0, i, 1.2345678F);
    put(run, 0, i, i == 3 ? 1.1953125F : 1.25F);  // 8 bits and 3
  }
  EXPECT_EQ(evidence().significant_bits, 8);
  put(run, 0, 2, 1.2345679F);
  EXPECT_EQ(evidence().significant_bits, 0);
}

TEST_F(Diagnose, GradientsThatNoHookHasSeenAreNotKnown) {
  std::fill(local.begin(), local.end(), std::byte{0});
  put(run, 0, 0, 9);
  EXPECT_FALSE(evidence().local_known);
  EXPECT_FALSE(evidence().local_wrong);
}

TEST_F(Diagnose, SumWithoutOneRanksPartIsRecognised) {
  for (int64_t i = 0; i < 4; ++i) {
    float part;
    std::memcpy(&part, shards.data() + 2 * 128 + i * 4, 4);
    put(run, 0, i, get(golden, 0, i) - part / kRanks);
  }
  EXPECT_EQ(evidence().missing_rank, 2);
  put(run, 0, 1, get(run, 0, 1) + 0.01F);
  EXPECT_EQ(evidence().missing_rank, -1);
}

TEST_F(Diagnose, AnotherRanksShardIsRecognised) {
  local.assign(shards.begin(), shards.begin() + 128);  // rank 0's
  put(run, 0, 3, 9.0F);
  const MismatchEvidence found = evidence();
  EXPECT_TRUE(found.local_wrong);
  EXPECT_EQ(found.local_of_rank, 0);
  EXPECT_EQ(found.element, (std::vector<int64_t>{1, 1}));
}

TEST_F(Diagnose, OneFactorOfTheRanksOwnGradientsIsMeasured) {
  const auto scale_local = [&](int64_t first) {
    for (int64_t entry = first; entry < 2; ++entry)
      for (int64_t i = 0; i < 4; ++i) {
        float value;
        std::memcpy(&value, local.data() + entry * 64 + i * 4, 4);
        value *= 0.9F;
        std::memcpy(local.data() + entry * 64 + i * 4, &value, 4);
      }
  };
  put(run, 0, 3, 9.0F);
  scale_local(0);
  EXPECT_NEAR(evidence().local_ratio, 0.9, 1e-6);
  scale_local(1);  // one tensor more than the other
  EXPECT_EQ(evidence().local_ratio, 0);
}

TEST_F(Diagnose, FewFlippedBitsAreCounted) {
  run[64 + 8] ^= std::byte{0x11};
  const MismatchEvidence found = evidence();
  EXPECT_EQ(found.bits_flipped, 2);
  EXPECT_EQ(found.tensor, "fc2.weight");
  EXPECT_FALSE(found.one_ratio);
}

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

// The same in bfloat16, whose rounding alone is no clipping.
TEST_F(UpdateEvidence, ClippedInBfloat16) {
  layout.entries[0].dtype = "bfloat16";
  layout.entries[0].bytes = 8;
  const auto put_brain = [](std::byte* gradients, const std::function<float(int64_t)>& value) {
    for (int64_t i = 0; i < 4; ++i) {
      const Brain16 rounded(value(i));
      std::memcpy(gradients + i * 2, &rounded.bits, 2);
    }
  };
  const auto mean = [](int64_t i) { return (share(0, i) + share(1, i)) / 2; };
  for (int64_t rank = 0; rank < 2; ++rank)
    put_brain(shards.data() + rank * 64, [&](int64_t i) { return share(rank, i); });
  put_brain(golden.data(), [&](int64_t i) { return std::clamp(mean(i), -0.25F, 0.25F); });
  put_brain(run.data(), [&](int64_t i) { return std::clamp(mean(i), -0.25F, 0.25F) * 1.004F; });
  EXPECT_EQ(evidence().clipping, "");
  put_brain(run.data(), mean);
  EXPECT_EQ(evidence().clipping, "absent");
  put_brain(run.data(), [](int64_t i) { return (std::min(share(0, i), 0.5F) + share(1, i)) / 2; });
  EXPECT_EQ(evidence().clipping, "before_sum");
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
