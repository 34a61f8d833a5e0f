#include <gmock/gmock.h>

#include <limits>

#include "sim/judge/divergence.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All ranks saw this in lane replay.
Outcome seen_everywhere(const MismatchEvidence& evidence) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) outcome.mismatch(rank, Lane::replay, evidence);
  return outcome;
}

Divergence divergence_of(const Outcome& outcome) {
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.verdict, Verdict::fail);
  return result.first_divergence.value_or(Divergence{});
}

void fail_float64(Outcome* outcome, int64_t step) {
  outcome->change(0, EventKind::distance, static_cast<int32_t>(Lane::float64), [&](Event& e) {
    if (e.step >= step) e.value = std::bit_cast<uint64_t>(0.25);
  });
}

TEST(Cause, WrongDivisorSaysByWhat) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.one_ratio = true;
  e.ratio = 0.8;
  Outcome outcome = seen_everywhere(e);
  fail_float64(&outcome, 1);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "wrong_divisor");
  EXPECT_EQ(d.explanation, "gradients are 0.8 x golden: divided by 5 instead of 4");
  EXPECT_EQ(d.lane, Lane::replay);
  EXPECT_EQ(d.tensor, "fc2.weight");
  EXPECT_EQ(d.bucket, 1);
  EXPECT_THAT(d.ranks, ElementsAre(0, 1, 2, 3));
}

// The worker saw that what was resumed with is not what was saved.
Divergence of_failed_resume(int64_t step) {
  MismatchEvidence e = gradient_evidence(Lane::replay, step);
  Outcome outcome = seen_everywhere(e);
  Part& checkpoint = outcome.run.plan.scenario.checkpoint;
  checkpoint.kind = "save_and_resume";
  checkpoint.options.set("after_step", int64_t{1});
  Evidence evidence = *evidence_from_json_text(outcome.run.evidence[1]);
  evidence.check_reasons = {
      {Check::checkpoint, 1, 1, "rank 1, resumed after step 1: fc2.weight is lost"}};
  outcome.run.evidence[1] = to_json_text(evidence);
  return divergence_of(outcome);
}

TEST(Cause, CheckpointExplainsWhatDiffersAfterTheResumeAlone) {
  const Divergence after = of_failed_resume(2);
  EXPECT_EQ(after.cause, "checkpoint");
  EXPECT_EQ(after.explanation, "rank 1, resumed after step 1: fc2.weight is lost");
  EXPECT_NE(of_failed_resume(1).cause, "checkpoint");
}

TEST(Cause, AShardOfAnotherSizeIsAnotherGlobalBatch) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.local_wrong = true;
  Outcome outcome = seen_everywhere(e);
  fail_float64(&outcome, 1);
  Evidence evidence = *evidence_from_json_text(outcome.run.evidence[1]);
  evidence.check_reasons = {
      {Check::batch, 1, 1, "rank 1, step 1: 32 samples, not 16: a global batch of 256"}};
  outcome.run.evidence[1] = to_json_text(evidence);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "global_batch");
  EXPECT_EQ(d.explanation, "rank 1, step 1: 32 samples, not 16: a global batch of 256");
  evidence.check_reasons = {
      {Check::batch, 1, 2, "rank 1, step 2: 32 samples, not 16: a global batch of 256"}};
  outcome.run.evidence[1] = to_json_text(evidence);
  EXPECT_EQ(divergence_of(outcome).cause, "unknown");
}

TEST(Cause, AFactorOfEachRanksOwnIsAWrongDivisor) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.local_wrong = true;
  const auto judged = [&] {
    Outcome outcome = seen_everywhere(e);
    fail_float64(&outcome, 1);
    return divergence_of(outcome);
  };
  EXPECT_EQ(judged().cause, "unknown");
  e.local_ratio = 20.0 / 21;
  const Divergence d = judged();
  EXPECT_EQ(d.cause, "wrong_divisor");
  EXPECT_THAT(d.explanation, HasSubstr("rank 0's gradients are 0.9524 x golden before"));
}

TEST(Cause, SummedButNotDivided) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.one_ratio = true;
  e.ratio = 4;
  EXPECT_EQ(divergence_of(seen_everywhere(e)).explanation,
            "gradients are 4 x golden: summed, not divided by 4");
}

TEST(Cause, ASumWithoutOneRanksPartIsAMissingGradient) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.gradients_wrong = 1;
  e.missing_rank = 2;
  Outcome outcome = seen_everywhere(e);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "missing_gradient");
  EXPECT_THAT(d.explanation, HasSubstr("without what rank 2 adds"));
  e.missing_rank = 1;  // ranks disagree on whose: something else is wrong
  outcome.mismatch(3, Lane::replay, e);
  EXPECT_NE(divergence_of(outcome).cause, "missing_gradient");
}

TEST(Cause, OwnGradientsOnTopOfTheAverageAreDoubled) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 2);
  e.own_added = 1;
  e.local_wrong = true;
  e.local_ratio = 2;  // both backwards together
  const Divergence d = divergence_of(seen_everywhere(e));
  EXPECT_EQ(d.cause, "doubled_gradient");
  EXPECT_THAT(d.explanation, HasSubstr("plus 1 x the rank's own"));
}

TEST(Cause, FewSignificantBitsAreAnEarlyCast) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.significant_bits = 8;
  Outcome outcome = seen_everywhere(e);
  fail_float64(&outcome, 1);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "precision");
  EXPECT_THAT(d.explanation, HasSubstr("rounded to bfloat16"));
}

TEST(Cause, AGradientThatNobodyHasUsedIsStale) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.present_in = "run";
  EXPECT_EQ(divergence_of(seen_everywhere(e)).cause, "stale_gradient");
  e.present_in = "golden";
  EXPECT_NE(divergence_of(seen_everywhere(e)).cause, "stale_gradient");
}

// Rank 1's worker saw it in step 2.
TEST(Cause, LostAccumulationIsAMissingGradient) {
  for (const int64_t step : {2, 3}) {
    Outcome outcome = seen_everywhere(gradient_evidence(Lane::replay, step));
    Evidence evidence = *evidence_from_json_text(outcome.run.evidence[1]);
    evidence.check_reasons = {
        {Check::accumulation, 1, 2, "rank 1, step 2: grad() of fc1.weight is not all"}};
    outcome.run.evidence[1] = to_json_text(evidence);
    EXPECT_EQ(divergence_of(outcome).cause == "missing_gradient", step == 2);
  }
}

TEST(Cause, MissingGradientAndDoubledGradient) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.gradients_wrong = 1;
  e.one_ratio = true;
  e.ratio = 0;
  EXPECT_EQ(divergence_of(seen_everywhere(e)).cause, "missing_gradient");
  e.ratio = 2;
  EXPECT_EQ(divergence_of(seen_everywhere(e)).cause, "doubled_gradient");
}

TEST(Cause, AllGradientsTwiceIsADivisorNotADoubledGradient) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.one_ratio = true;
  e.ratio = 2;
  EXPECT_EQ(divergence_of(seen_everywhere(e)).explanation,
            "gradients are 2 x golden: divided by 2 instead of 4");
}

TEST(Cause, MissingBucket) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 2);
  e.own_contribution = true;
  e.buckets_wrong = {1};
  Outcome outcome = seen_everywhere(e);
  for (size_t rank = 1; rank < 4; ++rank) outcome.part(rank, 0, 2);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "missing_bucket");
  EXPECT_THAT(d.explanation, HasSubstr("bucket 1 was never summed"));
  EXPECT_EQ(d.step, 2);
}

TEST(Cause, WrongShardIsKnownByTheGuiltyRankAlone) {
  Outcome outcome = seen_everywhere(gradient_evidence(Lane::replay, 1));
  MismatchEvidence guilty = gradient_evidence(Lane::replay, 1);
  guilty.local_known = guilty.local_wrong = true;
  guilty.local_of_rank = 1;
  outcome.run.evidence[2].clear();
  outcome.mismatch(2, Lane::replay, guilty);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "wrong_shard");
  EXPECT_THAT(d.explanation, HasSubstr("rank 2 trained on the shard of rank 1"));
}

TEST(Cause, SampleOrderWhereTheFirstOtherSamplesAreThoseOfThatStep) {
  const auto cause = [](int64_t step) {
    Outcome outcome = seen_everywhere(gradient_evidence(Lane::replay, step));
    Evidence evidence = *evidence_from_json_text(outcome.run.evidence[2]);
    evidence.check_reasons = {{Check::samples, 2, 2, "rank 2, step 2: row 0 is sample 17, not 3"}};
    outcome.run.evidence[2] = to_json_text(evidence);
    return divergence_of(outcome);
  };
  EXPECT_EQ(cause(2).cause, "sample_order");
  EXPECT_EQ(cause(2).explanation, "rank 2, step 2: row 0 is sample 17, not 3");
  EXPECT_NE(cause(1).cause, "sample_order");
}

TEST(Cause, InitialWeights) {
  Outcome outcome;
  MismatchEvidence e = gradient_evidence(Lane::replay, 0);
  e.state_kind = StateKind::parameter;
  for (size_t rank : {1, 2, 3}) {
    outcome.mismatch(rank, Lane::replay, e);
    outcome.part(rank, 2, 0);
    outcome.part(rank, 0, 1);
  }
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "initial_weights");
  EXPECT_EQ(d.step, 0);
  EXPECT_THAT(d.ranks, ElementsAre(1, 2, 3));
  EXPECT_THAT(d.explanation, HasSubstr("ranks 1 2 3"));
}

TEST(Cause, CorruptedBitsShowOnSomeRanksOnly) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 3);
  e.bits_flipped = 1;
  e.differing = e.gradients_wrong = 1;
  Outcome outcome;
  outcome.mismatch(1, Lane::replay, e);
  outcome.part(1, 0, 3);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.cause, "corrupted_bits");
  EXPECT_EQ(d.explanation, "1 bit of one copy flipped, on rank 1 only");
}

TEST(Cause, OneWrongElementOnOneRankIsCorruptedToo) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 3);
  e.differing = e.gradients_wrong = 1;
  Outcome outcome;
  outcome.mismatch(1, Lane::replay, e);
  outcome.part(1, 0, 3);
  EXPECT_EQ(divergence_of(outcome).cause, "corrupted_bits");
}

TEST(Cause, AnotherOrderIsProvedByLaneFloat64) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 2);
  e.ulp = e.max_ulp = 3;
  e.bits_flipped = 4;  // few, but everywhere the same
  const Divergence d = divergence_of(seen_everywhere(e));
  EXPECT_EQ(d.cause, "order_only");
  EXPECT_THAT(d.explanation, HasSubstr("lane float64 passes"));
}

TEST(Cause, WithoutLaneFloat64OnlyFewUlpAreAnotherOrder) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 2);
  Outcome outcome = seen_everywhere(e);
  outcome.run.plan.scenario.lanes = {Lane::replica, Lane::replay};
  EXPECT_EQ(divergence_of(outcome).cause, "unknown");
  e.max_ulp = 5;
  outcome = seen_everywhere(e);
  outcome.run.plan.scenario.lanes = {Lane::replica, Lane::replay};
  EXPECT_EQ(divergence_of(outcome).cause, "order_only");
}

TEST(Cause, NotShardDecomposable) {
  Outcome outcome;
  outcome.mismatch(0, Lane::float64, gradient_evidence(Lane::float64, 1));
  outcome.add(0, EventKind::distance, 1, static_cast<int32_t>(Lane::float64),
              std::bit_cast<uint64_t>(4e-4));
  EXPECT_EQ(divergence_of(outcome).cause, "not_shard_decomposable");
}

TEST(Cause, WhatPowerSgdLeavesOutIsNoOtherFunction) {
  Outcome outcome;
  outcome.mismatch(0, Lane::float64, gradient_evidence(Lane::float64, 2));
  outcome.add(0, EventKind::distance, 2, static_cast<int32_t>(Lane::float64),
              std::bit_cast<uint64_t>(4e-4));
  Part& hook = outcome.run.plan.scenario.comm_hook;
  hook.kind = "powersgd";
  hook.options.set("start_step", int64_t{2});
  EXPECT_EQ(divergence_of(outcome).cause, "precision");
  hook.options.set("start_step", outcome.run.plan.scenario.steps + 1);
  EXPECT_NE(divergence_of(outcome).cause, "precision");
}

TEST(Cause, AnotherFunctionUnderAdamShowsInItsStateMost) {
  MismatchEvidence e = gradient_evidence(Lane::float64, 1);
  e.state_kind = StateKind::optimizer_state;
  e.tensor = "fc2.weight.exp_avg_sq";
  Outcome outcome;
  outcome.mismatch(0, Lane::float64, e);
  outcome.add(0, EventKind::distance, 1, static_cast<int32_t>(Lane::float64),
              std::bit_cast<uint64_t>(0.8));
  EXPECT_EQ(divergence_of(outcome).cause, "not_shard_decomposable");
}

TEST(Cause, LittleBeyondTheBoundIsNoOtherFunction) {
  Outcome outcome;
  outcome.mismatch(0, Lane::float64, gradient_evidence(Lane::float64, 1));
  outcome.add(0, EventKind::distance, 1, static_cast<int32_t>(Lane::float64),
              std::bit_cast<uint64_t>(1.6e-10));
  EXPECT_EQ(divergence_of(outcome).cause, "unknown");
}

TEST(Cause, Overflow) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.run_value = std::numeric_limits<double>::infinity();
  Outcome outcome = seen_everywhere(e);
  fail_float64(&outcome, 1);
  EXPECT_EQ(divergence_of(outcome).cause, "overflow");
}

TEST(Cause, ByTheKindOfStateThatDiffersFirst) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.gradients_wrong = 0;
  for (const auto& [kind, cause] : {std::pair(StateKind::buffer, "buffers"),
                                    std::pair(StateKind::optimizer_state, "optimizer_state"),
                                    std::pair(StateKind::parameter, "unknown")}) {
    e.state_kind = kind;
    EXPECT_EQ(divergence_of(seen_everywhere(e)).cause, cause);
  }
}

TEST(Divergence, TheEarliestStepWinsThenTheOrderOfKinds) {
  Outcome outcome;
  MismatchEvidence late = gradient_evidence(Lane::replay, 3);
  MismatchEvidence early = gradient_evidence(Lane::float64, 2);
  early.state_kind = StateKind::parameter;
  early.tensor = "fc1.bias";
  outcome.mismatch(0, Lane::replay, late);
  outcome.mismatch(1, Lane::float64, early);
  EXPECT_EQ(divergence_of(outcome).tensor, "fc1.bias");
  MismatchEvidence gradient = gradient_evidence(Lane::float64, 2);
  outcome.mismatch(2, Lane::float64, gradient);
  EXPECT_EQ(divergence_of(outcome).state_kind, StateKind::gradient);
}

TEST(Divergence, OrderOfKindsWithinAStep) {
  Outcome outcome;
  MismatchEvidence e = gradient_evidence(Lane::replay, 2);
  for (const StateKind kind :
       {StateKind::optimizer_state, StateKind::parameter, StateKind::buffer, StateKind::gradient}) {
    e.state_kind = kind;
    outcome.mismatch(0, Lane::replay, e);
    EXPECT_EQ(divergence_of(outcome).state_kind, kind);
  }
}

TEST(Divergence, IsKnownFromHashesWhereNoWorkerLeftEvidence) {
  Outcome outcome;
  outcome.part(3, 1, 2);
  const Divergence d = divergence_of(outcome);
  EXPECT_EQ(d.lane, Lane::replica);
  EXPECT_EQ(d.step, 2);
  EXPECT_EQ(d.state_kind, StateKind::buffer);
  EXPECT_EQ(d.cause, "buffers");
  EXPECT_THAT(d.ranks, ElementsAre(3));
  EXPECT_FALSE(d.run_value);
}

// Rank 1 has one batch of two, and its momentum is old when the second epoch begins.
TEST(Cause, WhatJoinDoesNotHandOver) {
  Outcome outcome(4, 4);
  Scenario& s = outcome.run.plan.scenario;
  s.join_divide_by = "active_ranks";
  s.batch_size = 8;
  s.data.options.set("samples", int64_t{16});
  s.split.options.set("batches_per_rank", std::vector<int64_t>{2, 1, 2, 2});
  MismatchEvidence e = gradient_evidence(Lane::replay, 3);
  e.state_kind = StateKind::parameter;
  e.gradients_wrong = 0;
  outcome.mismatch(1, Lane::replay, e);
  const RunResult result = outcome.judge();
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->cause, "optimizer_state");
  outcome.mismatch(2, Lane::replay, e);  // it had batches all the time
  EXPECT_NE(outcome.judge().first_divergence->cause, "optimizer_state");
}

}  // namespace

}  // namespace lockstep
