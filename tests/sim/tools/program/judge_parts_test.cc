#include "sim/tools/program/judge_parts.h"

#include <gtest/gtest.h>

#include <limits>

#include "sim/tools/program/judge.h"
#include "tests/sim/tools/program/judged_ranks.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Two ranks with a part each, whose gradient nobody sums, and a parameter that both have.
Ranks parts() {
  Ranks ranks;
  for (const double own : {1.0, 3.0}) {
    ProgramStep step;
    step.names = {"norm", "part"};
    step.exchanges = 2;
    step.unreduced = {"part"};
    step.before = step.params = {std::vector<double>(5, 1.0), std::vector<double>(5, own)};
    step.grads = std::vector<Sketch>(2, std::vector<double>(5, 1.0));
    step.param_hashes = step.grad_hashes = {"norm", std::to_string(own)};
    ProgramRank& rank = ranks.emplace_back();
    rank.rank = static_cast<int64_t>(ranks.size()) - 1;
    rank.ended = true;
    rank.steps = {step};
  }
  return ranks;
}

TEST(ProgramParts, OfOneModelAreNotReplicas) {
  const ProgramFinding found = judge_replicas(parts());
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(
      found.words,
      "ranks start with different values of part, do not sum its gradient over all of them, and "
      "exchange results within the forward: each seems to hold a part of one model (tensor "
      "or expert parallel), which cannot be compared");
}

// Ranks whose part is beside what DistributedDataParallel holds.
Ranks dealt() {
  Ranks ranks = parts();
  for (ProgramRank& rank : ranks) {
    rank.steps[0].exchanges = 0;
    rank.steps[0].ddp_forwards = 1;
    rank.steps[0].unheld = {"part"};
    rank.steps[0].elements = 20;
  }
  return ranks;
}

TEST(ProgramParts, ThatOneDeviceHasAllOfAreNoCopies) {
  const Ranks ranks = dealt();
  ProgramRank one = ranks[0];
  EXPECT_EQ(parts_that_one_device_has(ranks, one, 0), "") << "as copies are";
  one.steps[0].elements = 30;
  EXPECT_EQ(parts_that_one_device_has(ranks, one, 0),
            "one device updates 30 numbers and rank 0 20 of them: each rank seems to have "
            "parameters, as part, that no other rank has, which cannot be compared");
}

TEST(ProgramParts, ThatOneDeviceHasMoreOfExcuseNoOtherParameter) {
  Ranks ranks = dealt();
  ProgramRank one = ranks[0];
  one.steps[0].elements = 30;
  ranks[1].steps[0].param_hashes[0] = "another norm";
  EXPECT_EQ(parts_that_one_device_has(ranks, one, 0), "");
}

TEST(ProgramParts, ThatOneRankAloneTrainsAreNoCopies) {
  Ranks ranks = dealt();
  ranks[1].steps[0].grads[1] = std::nullopt;
  EXPECT_NE(parts_that_one_device_has(ranks, ranks[0], 0), "");
}

// Owners of tables that are seeded alike, as in DLRM: who deals results out has a part.
TEST(ProgramParts, MayStartWithTheSameValues) {
  Ranks ranks = parts();
  for (ProgramRank& rank : ranks) rank.steps[0].before[1] = std::vector<double>(5, 1.0);
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail) << "an all_gather is no such exchange";
  ranks[0].steps[0].dealt_out = 1;
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail);
  ranks[1].steps[0].dealt_out = 1;
  EXPECT_EQ(judge_replicas(ranks).words,
            "ranks update part, do not sum its gradient over all of them, and scatter results to "
            "each other within the forward: each seems to hold a part of one model (tensor or "
            "expert parallel), which cannot be compared");
  for (ProgramRank& rank : ranks) rank.steps[0].unreduced.clear();
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail) << "all ranks have summed it";
}

TEST(ProgramParts, StartOneDeviceWithOtherWeightsForThatReason) {
  const Ranks ranks = parts();
  ProgramRank one = ranks[0];
  one.steps[0].before[0] = std::vector<double>(5, 2.0);
  const ProgramFinding found = judge_steps(ranks, one);
  EXPECT_FALSE(found.other_data) << "nothing is to be handed on";
  EXPECT_EQ(found.words, judge_replicas(ranks).words);
}

TEST(ProgramParts, OfAnOptimizerOfTheirOwnAreSeenInItsFirstStep) {
  Ranks ranks = parts();
  for (ProgramRank& rank : ranks) {
    ProgramStep shared = rank.steps[0];
    shared.names = {"norm"};
    shared.before.resize(1);
    shared.params.resize(1);
    shared.grads.resize(1);
    shared.param_hashes = shared.grad_hashes = {"norm"};
    shared.unreduced.clear();
    rank.steps[0].optimizer = 1;
    rank.steps[0].before.clear();
    rank.steps[0].before_hash = std::to_string(rank.rank);
    rank.steps[0].exchanges = 0;
    rank.steps.insert(rank.steps.begin(), shared);
  }
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::inconclusive);
}

TEST(ProgramParts, ThatAreShardsBesideTheModelAreTheirOwners) {
  Ranks ranks = parts();
  for (ProgramRank& rank : ranks) {
    rank.steps[0].names[1] = "parameter 1";
    rank.steps[0].samples = {std::to_string(rank.rank)};
    rank.steps[0].exchanges = 0;
    rank.steps[0].unreduced.clear();
  }
  ranks[1].steps[0].unreduced = {"parameter 1"};
  EXPECT_EQ(judge_replicas(ranks).words,
            "each rank's optimizer has a parameter 1 of its own that is in no model, and does not "
            "sum its gradient: it seems to update a shard of the parameters, which cannot be "
            "compared");
  ranks[1].steps[0].unreduced.clear();
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail) << "summed";
  ranks[1].steps[0].unreduced = {"parameter 1"};
  ranks[0].steps[0].samples.clear();
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail) << "it is what is trained";
}

// Two models, of two ranks each: ranks 0 and 2 begin them.
TEST(ProgramParts, OfTensorParallelRanksOneEachHasBatchesOfItsOwn) {
  Ranks ranks;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(judged::made_rank(rank, 4));
    ranks.back().part = rank % 2;
    ranks.back().parts = 2;
  }
  const Ranks own = ranks_of_own_batches(ranks);
  ASSERT_EQ(own.size(), 2U);
  EXPECT_EQ(own[1].rank, 2);
  ranks[3].parts = 3;
  EXPECT_EQ(ranks_of_own_batches(ranks).size(), 4U) << "they do not agree";
  for (ProgramRank& rank : ranks) rank.parts = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ranks_of_own_batches(ranks).size(), 4U);
}

// There is nothing to sum: whatever differs is no mistake of data parallel training.
TEST(ProgramParts, OneModelThatAllRanksHoldIsJudgedByOneBatch) {
  Ranks ranks = judged::three();
  for (ProgramRank& rank : ranks) {
    rank.part = rank.rank;
    rank.parts = 3;
    for (ProgramStep& step : rank.steps) step.samples = {"a", "b"};
  }
  ProgramRank one = judged::one();
  for (ProgramStep& step : one.steps) step.samples = {"a", "b"};
  const Ranks first = ranks_of_own_batches(ranks);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(judge_one_device(first, one).verdict, Verdict::pass);
  EXPECT_TRUE(one_device_control_fails(first, one));
  one.steps[1].grads[0] = judged::sketch_of(3);
  const ProgramFinding found = judge_one_device(first, one);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::unknown);
}

TEST(ProgramParts, ReplicasThatStartApartAreNone) {
  for (int what = 0; what < 3; ++what) {
    Ranks ranks = parts();
    for (ProgramRank& rank : ranks) {
      ProgramStep& step = rank.steps[0];
      if (what == 0) step.exchanges = 0;
      if (what == 1) step.unreduced.clear();
      if (what == 2) step.before = {};
    }
    EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail) << what;
    EXPECT_EQ(parts_of_one_model(ranks), "");
  }
}

}  // namespace
}  // namespace lockstep
