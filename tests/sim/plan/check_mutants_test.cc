#include <gtest/gtest.h>

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

TEST(CheckMutants, ATensorIsOneOfTheModels) {
  const std::string unknown = errors_of({mutant("replace_parameter", R"(,"tensor":"nothing")")});
  EXPECT_EQ(unknown.substr(0, 62),
            "/mutants/0/tensor: the model has no parameter \"nothing\"; expec");
}

}  // namespace
}  // namespace lockstep
