#include <gtest/gtest.h>

#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

std::string mutant(const std::string& kind, const std::string& more = "") {
  return "/mutants=[{\"kind\":\"" + kind + "\"" + more + "}]";
}

TEST(CheckMutants, WhatActsBeforeTheFirstStepHasNone) {
  EXPECT_EQ(errors_of({mutant("hook_path", R"(,"step":1)")}),
            "/mutants/0/step: hook_path acts before the first step; expected no step");
  EXPECT_EQ(errors_of({mutant("hook_path")}), "");
  EXPECT_EQ(errors_of({mutant("skip_hook", R"(,"step":1)")}), "");
}

TEST(CheckMutants, HooksTakeThePlaceOfNone) {
  EXPECT_EQ(errors_of({mutant("sum_undivided"), R"(/comm_hook={"kind":"fp16"})"}),
            "/mutants/0/kind: sum_undivided cannot act here; expected reducer bucketed or c10d, "
            "without a comm hook");
  EXPECT_NE(errors_of({mutant("sum_undivided"), "/reducer/kind=flat"}), "");
  EXPECT_NE(errors_of({mutant("bypass_reducer"), "/reducer/kind=manual"}), "");
  EXPECT_EQ(errors_of({mutant("bypass_reducer"), "/reducer/kind=c10d"}), "");
}

TEST(CheckMutants, WhatTheyActOnMustBeThere) {
  EXPECT_EQ(errors_of({mutant("skip_finalize"), "/reducer/kind=c10d"}),
            "/mutants/0/kind: skip_finalize cannot act here; expected reducer bucketed");
  EXPECT_EQ(errors_of({mutant("clone_gradient")}),
            "/mutants/0/kind: clone_gradient cannot act here; expected gradient_as_bucket_view "
            "true");
  EXPECT_EQ(errors_of({mutant("forget_used")}),
            "/mutants/0/kind: forget_used cannot act here; expected find_unused_parameters true");
  EXPECT_EQ(errors_of({mutant("lose_accumulated")}),
            "/mutants/0/kind: lose_accumulated cannot act here; expected accumulate_steps of 2 or "
            "more");
  EXPECT_EQ(errors_of({mutant("ignore_parameter")}),
            "/mutants/0: ignore_parameter without its parameter; expected a key tensor");
  EXPECT_NE(errors_of({mutant("reassign_buffer")}), "");
}

TEST(CheckMutants, ABucketsOrderIsForgottenWhereThereIsOne) {
  EXPECT_EQ(errors_of({mutant("own_ready_order")}), "");
  EXPECT_EQ(errors_of({mutant("own_ready_order", R"(,"rank":0)")}),
            "/mutants/0/rank: the order is rank 0's; expected a rank from 1 on");
  EXPECT_NE(errors_of({mutant("own_ready_order"), "/reducer/find_unused_parameters=true"}), "");
  EXPECT_NE(errors_of({mutant("own_ready_order"), "/reducer/kind=flat"}), "");
  EXPECT_NE(errors_of({mutant("own_ready_order", R"(,"step":2)")}), "");
}

TEST(CheckMutants, FeedbackIsForgottenWhereThereIsSome) {
  const std::string hook = R"(/comm_hook={"kind":"powersgd"})";
  EXPECT_EQ(errors_of({mutant("no_error_feedback"), hook}), "");
  EXPECT_EQ(errors_of({mutant("no_error_feedback")}),
            "/mutants/0/kind: no_error_feedback without any to lose; expected comm hook powersgd "
            "with error_feedback");
  EXPECT_NE(errors_of({mutant("no_error_feedback"),
                       R"(/comm_hook={"kind":"powersgd","error_feedback":false})"}),
            "");
}

TEST(CheckMutants, ATensorIsOneOfTheModels) {
  const std::string unknown = errors_of({mutant("replace_parameter", R"(,"tensor":"nothing")")});
  EXPECT_EQ(unknown.substr(0, 62),
            "/mutants/0/tensor: the model has no parameter \"nothing\"; expec");
}

// Of a mutant in a small scenario.
std::string allowed_with(const std::string& mutant, Strings sets = {}) {
  sets.push_back("/mutants=[" + mutant + "]");
  return allowed_of(sets);
}

TEST(DataMutantCheck, EveryKindHasItsKeys) {
  EXPECT_EQ(
      allowed_with(
          R"({"kind": "flip_gradient", "rank": 1, "step": 2, "tensor": "weight", "element": 5, "bit": 3})"),
      "");
  EXPECT_EQ(
      allowed_with(
          R"({"kind": "shift_contribution", "rank": 1, "step": 2, "bucket": 0, "element": 5})"),
      "");
  EXPECT_EQ(allowed_with(R"({"kind": "short_slice", "rank": 1, "bucket": 0, "element": 2})"), "");
  EXPECT_EQ(allowed_with(R"({"kind": "reorder_sum", "step": 2})"), "");
  EXPECT_EQ(allowed_with(R"({"kind": "swap_shards", "rank": 1, "other": 3, "step": 2})"), "");
  EXPECT_EQ(allowed_with(R"({"kind": "drop_broadcast", "rank": 1})"), "");
}

TEST(DataMutantCheck, KeysOfOtherKindsAreRefused) {
  EXPECT_EQ(allowed_with(R"({"kind": "drop_gradient", "bucket": 0})"),
            "/mutants/0/bucket: no bucket");
  EXPECT_EQ(allowed_with(R"({"kind": "drop_gradient", "element": 0})"),
            "/mutants/0/element: no element");
  EXPECT_EQ(allowed_with(R"({"kind": "shift_contribution", "bit": 0})"), "/mutants/0/bit: no bit");
  EXPECT_EQ(allowed_with(R"({"kind": "double_contribution", "tensor": "weight"})"),
            "/mutants/0/tensor: no tensor");
  EXPECT_EQ(allowed_with(R"({"kind": "stale_shard", "rank": 1, "step": 2, "other": 0})"),
            "/mutants/0/other: no other");
}

TEST(DataMutantCheck, WhatCannotShowIsAMistake) {
  EXPECT_EQ(allowed_with(R"({"kind": "stale_gradient", "step": 1})"),
            "/mutants/0/step: a step from 2 on");
  EXPECT_EQ(allowed_with(R"({"kind": "drop_gradient", "tensor": "bias"})", {"/frozen=[\"bias\"]"}),
            "/mutants/0/tensor: a parameter that is not in /frozen");
  EXPECT_EQ(allowed_with(R"({"kind": "stale_shard", "step": 2})", {"/split/kind=manual"}),
            "/mutants/0/kind: another split than manual");
  for (const char* mutant : {R"({"kind": "swap_shards", "rank": 1})",
                             R"({"kind": "swap_shards", "rank": 1, "other": 1})",
                             R"({"kind": "swap_shards", "rank": 1, "other": 4})"})
    EXPECT_EQ(allowed_with(mutant), "/mutants/0/other: rank and other: two ranks from 0 to 3");
  EXPECT_EQ(allowed_with(R"({"kind": "short_slice"})", {"/reducer/kind=sharded"}),
            "/mutants/0/kind: another reducer than sharded");
  EXPECT_EQ(allowed_with(R"({"kind": "reorder_sum", "rank": 1})"), "/mutants/0/rank: no rank");
  EXPECT_EQ(allowed_with(R"({"kind": "drop_broadcast", "rank": 0})"),
            "/mutants/0/rank: a rank from 1 on");
  EXPECT_EQ(allowed_with(R"({"kind": "drop_broadcast", "step": 1})"), "/mutants/0/step: no step");
}

TEST(DataMutantCheck, MasksAreDrawnByModelsWithDropoutOrOnesOwn) {
  const std::string own = R"(/model={"kind": "registered", "name": "mine"})";
  const std::string dropout = R"(/model={"kind": "mlp", "in_features": 3, "out_features": 2,
                                         "hidden": [4], "dropout": 0.1})";
  EXPECT_EQ(allowed_with(R"({"kind": "same_masks"})", {own}), "");
  EXPECT_EQ(allowed_with(R"({"kind": "same_masks", "rank": 1, "step": 2})", {dropout}), "");
  EXPECT_EQ(allowed_with(R"({"kind": "same_masks"})"),
            "/mutants/0/kind: a dropout above 0, or a registered model");
  EXPECT_EQ(allowed_with(R"({"kind": "same_masks", "rank": 0})", {dropout}),
            "/mutants/0/rank: a rank from 1 on");
  EXPECT_EQ(allowed_with(R"({"kind": "same_masks", "bucket": 0})", {dropout}),
            "/mutants/0/bucket: no bucket");
}

TEST(DataMutantCheck, StatisticsAreThoseOfLayersThatAskAllRanks) {
  const auto with_norm = [](const std::string& norm) {
    return R"(/model={"kind": "batch_norm_mlp", "in_features": 3, "hidden": [4],
                      "out_features": 2, "norm": ")" +
           norm + "\"}";
  };
  const std::string mutant = R"({"kind": "own_batch_norm", "rank": 0, "step": 2})";
  for (const char* norm : {"sync", "sync_equal"})
    EXPECT_EQ(allowed_with(mutant, {with_norm(norm)}), "");
  EXPECT_EQ(allowed_with(mutant, {with_norm("batch")}),
            "/mutants/0/kind: norm sync or sync_equal, or a registered model");
}

TEST(DataMutantCheck, MomentumIsLostAtAResumeThatThereIs) {
  const std::string resume = R"(/checkpoint={"kind": "save_and_resume", "after_step": 2})";
  const std::string momentum = "/optimizer/momentum=0.9";
  EXPECT_EQ(allowed_with(R"({"kind": "lose_momentum", "rank": 1})", {resume, momentum}), "");
  EXPECT_EQ(allowed_with(R"({"kind": "lose_momentum", "step": 2})", {resume, momentum}), "");
  EXPECT_EQ(allowed_with(R"({"kind": "lose_momentum", "step": 1})", {resume, momentum}),
            "/mutants/0/step: no step, or /checkpoint/after_step");
  EXPECT_EQ(allowed_with(R"({"kind": "lose_momentum"})", {resume}),
            "/mutants/0/kind: a momentum > 0, or another optimizer");
  EXPECT_EQ(allowed_with(R"({"kind": "lose_momentum"})", {momentum}),
            "/mutants/0/kind: a checkpoint of kind save_and_resume");
}

}  // namespace

}  // namespace lockstep
