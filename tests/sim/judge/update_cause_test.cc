#include <gmock/gmock.h>

#include <limits>

#include "sim/judge/divergence.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

// All ranks saw this in lane replay.
Divergence divergence_of_update(const MismatchEvidence& evidence,
                                const std::string& reducer = "bucketed") {
  Outcome outcome;
  outcome.run.plan.scenario.reducer.kind = reducer;
  for (size_t rank = 0; rank < 4; ++rank) outcome.mismatch(rank, Lane::replay, evidence);
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.verdict, Verdict::fail);
  return result.first_divergence.value_or(Divergence{});
}

MismatchEvidence weight_evidence(int64_t step) {
  MismatchEvidence e = gradient_evidence(Lane::replay, step);
  e.state_kind = StateKind::parameter;
  e.gradients_wrong = 0;
  e.max_ulp = 1'000'000;
  return e;
}

TEST(UpdateCause, ClippingIsNamedBeforeARatio) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.one_ratio = true;
  e.ratio = 0.5;
  e.clipping = "before_sum";
  EXPECT_EQ(divergence_of_update(e).cause, "clipping");
  EXPECT_THAT(divergence_of_update(e).explanation, testing::HasSubstr("clipped separately"));
  e.clipping = "absent";
  EXPECT_THAT(divergence_of_update(e).explanation, testing::HasSubstr("not clipped"));
  e.clipping = "";
  EXPECT_EQ(divergence_of_update(e).cause, "wrong_divisor");
}

TEST(UpdateCause, SkippedStepsAreCounted) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 2);
  e.run_value = std::numeric_limits<double>::infinity();
  e.skipped_run = 0;
  e.skipped_golden = 1;
  EXPECT_EQ(divergence_of_update(e).cause, "skipped_step");
  EXPECT_EQ(divergence_of_update(e).explanation,
            "ranks 0 1 2 3 skipped 0 steps so far, the golden run 1");
  e.skipped_run = 1;
  EXPECT_EQ(divergence_of_update(e).cause, "overflow");
}

TEST(UpdateCause, WeightsThatMoveByAnotherFactor) {
  MismatchEvidence e = weight_evidence(1);
  EXPECT_EQ(divergence_of_update(e).cause, "unknown");
  e.update_known = true;
  e.update_ratio = 2;
  EXPECT_EQ(divergence_of_update(e).cause, "learning_rate");
  EXPECT_THAT(divergence_of_update(e).explanation, testing::HasSubstr("2 x golden"));
  e.update_ratio = 0;
  EXPECT_EQ(divergence_of_update(e).cause, "skipped_step");
}

TEST(UpdateCause, WeightsThatNobodySentAreStaleOnlyWhereRanksShareTheUpdate) {
  MismatchEvidence e = weight_evidence(2);
  e.update_known = true;
  e.update_ratio = 0;
  e.weights_kept = {"fc1.weight"};
  e.weights_moved = true;
  EXPECT_EQ(divergence_of_update(e).cause, "skipped_step");
  EXPECT_EQ(divergence_of_update(e, "sharded").cause, "stale_weights");
  EXPECT_EQ(divergence_of_update(e, "sharded").explanation,
            "values of the step before in fc1.weight on ranks 0 1 2 3: what their owners updated "
            "did not come");
  e.weights_moved = false;  // of no owner: the whole step was skipped
  EXPECT_EQ(divergence_of_update(e, "sharded").cause, "skipped_step");
}

TEST(UpdateCause, ABucketScatteredWithoutASum) {
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.single_contributions = true;
  e.buckets_wrong = {1};
  EXPECT_NE(divergence_of_update(e).cause, "missing_bucket");
  EXPECT_EQ(divergence_of_update(e, "sharded").cause, "missing_bucket");
  EXPECT_THAT(divergence_of_update(e, "sharded").explanation, testing::HasSubstr("one rank's own"));
}

TEST(UpdateCause, OptimizerStateBeforeStepOneIsNoInitialWeight) {
  MismatchEvidence e = weight_evidence(0);
  EXPECT_EQ(divergence_of_update(e).cause, "initial_weights");
  e.state_kind = StateKind::optimizer_state;
  EXPECT_EQ(divergence_of_update(e).cause, "optimizer_state");
}

}  // namespace
}  // namespace lockstep
