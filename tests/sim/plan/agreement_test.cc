#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/plan/agreement.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

std::string compared_steps(const RunPlan& plan, int64_t start_step) {
  std::string steps;
  int64_t number = 0;
  for (int64_t step = start_step; step <= plan.scenario.steps; ++step) {
    if (!is_compared(plan, start_step, step)) continue;
    EXPECT_EQ(comparison_number(plan, start_step, step), number++) << step;
    steps += std::to_string(step) + " ";
  }
  return steps;
}

TEST(Comparing, SmallModelsAfterEveryStep) {
  const RunPlan plan = planned({"/steps=4"});
  EXPECT_EQ(plan.compare_every, 1);
  EXPECT_TRUE(plan.hash_between);
  EXPECT_EQ(compared_steps(plan, 0), "0 1 2 3 4 ");
}

TEST(Comparing, FirstLastAndEachThatDivides) {
  const RunPlan plan = planned({"/steps=10", "/compare_every=3"});
  EXPECT_EQ(compared_steps(plan, 0), "0 1 3 6 9 10 ");
  EXPECT_EQ(compared_steps(plan, 4), "4 5 6 9 10 ");
  EXPECT_EQ(compared_steps(planned({"/steps=9", "/compare_every=3"}), 0), "0 1 3 6 9 ");
  EXPECT_EQ(compared_steps(planned({"/steps=5", "/compare_every=100"}), 0), "0 1 5 ");
  EXPECT_EQ(plan_from_json(as_json(plan)).compare_every, 3);
}

TEST(Comparing, LargeModelsEveryTenth) {
  const Strings large = {
      R"(/model={"kind":"mlp","in_features":3,"hidden":[3000,3000],"out_features":400})",
      "/data/targets=400"};
  EXPECT_EQ(planned(large).compare_every, 10);
  Strings sets = large;
  sets.push_back("/compare_every=1");
  EXPECT_EQ(planned(sets).compare_every, 1);
  sets = large;
  sets.push_back(R"(/mutants=[{"kind":"flip_bit","step":2}])");
  EXPECT_EQ(planned(sets).compare_every, 1) << "where a defect is looked for, the step counts";
}

TEST(Comparing, RefusedWhereEveryStepIsNeeded) {
  EXPECT_EQ(errors_of({"/compare_every=2", R"(/lanes=["rounding"])"}),
            "/compare_every: lane rounding needs the state before each step; expected 1, or 0");
}

}  // namespace

}  // namespace lockstep
