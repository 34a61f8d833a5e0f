#include "sim/tools/program/weights_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "sim/tools/program/drill_cause.h"

namespace lockstep {
namespace {

TEST(WeightsFit, SharesOfACountAreToldFromOthers) {
  EXPECT_TRUE(are_shares_of_a_count({0.375, 0.625}));
  EXPECT_TRUE(are_shares_of_a_count({12.0 / 47, 17.0 / 47, 18.0 / 47}));
  EXPECT_TRUE(are_shares_of_a_count({10'007.0 / 20'011, 10'004.0 / 20'011}));
  EXPECT_FALSE(are_shares_of_a_count({0.35179434, 0.30712811, 0.34107755}));
  EXPECT_FALSE(are_shares_of_a_count({std::sqrt(0.2), 1 - std::sqrt(0.2)}));
}

TEST(WeightsFit, AColumnOfZerosHasNoWeight) {
  std::vector<WeightedRow> rows;
  for (const double x : {1.0, 2.0, -1.0, 4.0, 0.5, 3.0, -2.0, 1.5})
    rows.push_back({x, 0, x * x, 0.25 * x + 0.75 * x * x});
  const std::vector<double> weights = fitted_weights(rows, 3);
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_NEAR(weights[0], 0.25, 1e-12);
  EXPECT_EQ(weights[1], 0);
  EXPECT_NEAR(weights[2], 0.75, 1e-12);
}

TEST(WeightsFit, AFunctionOfAMeanIsNoMeanOfMeans) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.weights = {0.25, 0.75};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::mean_of_means);
  drilled.weights = {std::sqrt(0.2), 1 - std::sqrt(0.2)};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::function_of_mean);
  drilled.weights = {std::sqrt(0.2), std::sqrt(0.3)};  // as of a root
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::function_of_mean);
  drilled.weights = {0.5, 0.25};  // as where rank 1 doubles its loss
  const ProgramFinding apart = with_cause(drilled, {}, wrong);
  EXPECT_EQ(apart.cause, ProgramCause::loss_scaled_apart);
  EXPECT_NE(apart.words.find("multiplied by 1, 2"), std::string::npos) << apart.words;
  drilled.weights = {0.375, 0.125};  // of a count, and divided by the number of ranks once more
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::mean_of_means);
}

ProgramCause cause_of_operator(DrillStage stage, const std::string& function,
                               const ProgramStep& step = {}) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = stage;
  drilled.place.function = function;
  drilled.shape = drilled.one_shape = {4};
  drilled.distance = 0.1;
  drilled.given_fits = true;
  return with_cause(drilled, step, wrong).cause;
}

TEST(DrillCause, WhatIsMadeOfABatchAsAWholeIsTold) {
  constexpr auto kForward = DrillStage::forward, kBackward = DrillStage::backward;
  EXPECT_EQ(cause_of_operator(kForward, "torch.Tensor.topk"), ProgramCause::own_batch);
  EXPECT_EQ(cause_of_operator(kForward, "torch.Tensor.mul"), ProgramCause::unknown)
      << "what is multiplied by may be each rank's own";
  EXPECT_EQ(cause_of_operator(kBackward, "torch.Tensor.topk"), ProgramCause::unknown);
  EXPECT_EQ(cause_of_operator(kForward, "torch.nn.functional.batch_norm"),
            ProgramCause::local_batch_norm);
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding pairs;
  pairs.stage = kForward;
  pairs.place.function = "torch.Tensor.matmul";
  pairs.shape = {4, 4};
  pairs.one_shape = {12, 12};
  pairs.given_fits = true;
  EXPECT_EQ(with_cause(pairs, {}, wrong).cause, ProgramCause::own_batch);
  pairs.given_fits = false;
  EXPECT_EQ(with_cause(pairs, {}, wrong).cause, ProgramCause::unknown);
}

TEST(DrillCause, ASumOverRanksWithoutABackwardIsAConstant) {
  ProgramStep step;
  EXPECT_EQ(cause_of_operator(DrillStage::backward, "Mean.apply", step), ProgramCause::unknown);
  step.exchanges = 1;
  EXPECT_EQ(cause_of_operator(DrillStage::backward, "Mean.apply", step),
            ProgramCause::gathered_as_constants);
  EXPECT_EQ(cause_of_operator(DrillStage::backward, "torch.Tensor.mean", step),
            ProgramCause::unknown);
}

TEST(DrillCause, FactorsOfRanksAndWhatAnOperatorIsGivenAreTold) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::forward;
  drilled.world = 2;
  drilled.factors = ScalarFactors{{1, 2}, 1};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::loss_scaled_apart);
  drilled.factors = ScalarFactors{{0.25, 0.125}, 1.0 / 12};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::mean_of_means);
  drilled.factors = ScalarFactors{{3, 3}, 1};
  const ProgramFinding shared = with_cause(drilled, {}, wrong);
  EXPECT_EQ(shared.cause, ProgramCause::other_numbers);
  EXPECT_EQ(shared.words, "; it is multiplied by 3 on each rank, and by 1 on one device");
  drilled.factors = ScalarFactors{{0.5, 0.5}, 1};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::scaled_by_ranks);
  drilled.factors = ScalarFactors{{3, 3}, 3};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown) << "no other number";
  drilled.whole = DifferingWhole{{"torch.Tensor.mean", "", "", "train.py:3"}};
  const ProgramFinding given = with_cause(drilled, {}, wrong);
  EXPECT_EQ(given.cause, ProgramCause::own_batch);
  EXPECT_NE(given.words.find("torch.Tensor.mean makes of each rank's own batch, at train.py:3"),
            std::string::npos);
  drilled.whole->shared = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::other_numbers);
  drilled.whole->shared = false;
  drilled.whole->kept = true;
  const ProgramFinding kept = with_cause(drilled, {}, wrong);
  EXPECT_EQ(kept.cause, ProgramCause::own_constants);
  EXPECT_NE(kept.words.find("of each rank's own samples before the training, at train.py:3"),
            std::string::npos);
}

TEST(DrillCause, OneTermOfALossIsTold) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::forward;
  drilled.given_fits = drilled.of_means = true;
  drilled.place.function = "torch.Tensor.add";
  drilled.summed_term = DrillTerm{{"torch.Tensor.sum", "", "", "train.py:3"}, false, {}};
  const ProgramFinding summed = with_cause(drilled, {}, wrong);
  EXPECT_EQ(summed.cause, ProgramCause::summed_loss);
  EXPECT_EQ(summed.words,
            "; the loss adds a sum over samples (torch.Tensor.sum at train.py:3) to a mean");
  drilled.takes_sums = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::not_divided);
  drilled.summed_term->was_mean = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::function_of_mean) << "unknown how";
  drilled.summed_term->factors = ScalarFactors{{0.5, 0.5}, 1};
  const ProgramFinding scaled = with_cause(drilled, {}, wrong);
  EXPECT_EQ(scaled.cause, ProgramCause::scaled_by_ranks);
  EXPECT_EQ(scaled.words,
            "; one term of the loss (torch.Tensor.sum at train.py:3) is multiplied by 0.5 on each "
            "rank, and by 1 on one device");
}

TEST(DrillCause, IndicesThatLackAnOffsetAreTold) {
  const auto given = [](const std::vector<double>& values) {
    DrillCall made;
    ElementNorms norms;
    for (const double value : values) norms.sum += value, norms.two += value * value;
    norms.one = norms.sum;
    norms.two = std::sqrt(norms.two);
    made.indices.push_back({{std::ssize(values)}, norms, {}, {}});
    return made;
  };
  const DrillCall a = given({0, 1, 2}), further = given({3, 4, 5}),
                  both = given({0, 1, 2, 3, 4, 5}), again = given({0, 1, 2, 0, 1, 2});
  EXPECT_TRUE(lack_offset({{&a, &a}, &both}));
  EXPECT_FALSE(lack_offset({{&a, &further}, &both})) << "they have it";
  EXPECT_FALSE(lack_offset({{&a, &a}, &again})) << "nor has one device";
  EXPECT_FALSE(lack_offset({{&a, &a}, &a}));
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::forward;
  drilled.lacks_offset = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown) << "what came in differs";
  drilled.given_fits = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::indices_without_offset);
}

TEST(DrillCause, AHookOrAFunctionThatLosesGradientsIsTold) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::reduction;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown);
  drilled.comm_hook = "signs";
  const ProgramFinding hooked = with_cause(drilled, {}, wrong);
  EXPECT_EQ(hooked.cause, ProgramCause::hook_beyond_bound);
  EXPECT_EQ(hooked.words,
            "; after backward the gradient is as the communication hook signs left it");
  drilled.comm_hook.clear();
  drilled.stage = DrillStage::backward;
  drilled.in_function = true;
  ProgramStep step;
  EXPECT_EQ(with_cause(drilled, step, wrong).cause, ProgramCause::unknown);
  step.gathered_inside = true;
  EXPECT_EQ(with_cause(drilled, step, wrong).cause, ProgramCause::gathered_as_constants);
}

TEST(DrillCause, NumbersAndBranchesOfEachRanksOwnAreTold) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::forward;
  drilled.place.function = "torch.Tensor.div";
  drilled.numbers = GivenNumbers{{0.5, 0.25}, 0.4};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown) << "what came in differs";
  drilled.given_fits = true;
  const ProgramFinding numbers = with_cause(drilled, {}, wrong);
  EXPECT_EQ(numbers.cause, ProgramCause::own_numbers);
  drilled.stage = DrillStage::backward;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::own_numbers);
  drilled.stage = DrillStage::forward;
  EXPECT_EQ(numbers.words, "; torch.Tensor.div is given 0.5, 0.25, and on one device 0.4");
  drilled.numbers->shared = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::other_numbers);
  drilled.numbers->shared = false;
  drilled.branch = DrillBranch{"b.weight", {1}, false};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::own_numbers);
  drilled.numbers.reset();
  const ProgramFinding branch = with_cause(drilled, {}, wrong);
  EXPECT_EQ(branch.cause, ProgramCause::other_branches);
  EXPECT_EQ(branch.words, "; rank 1 uses b.weight, and one device does not");
  drilled.branch->together = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown);
  drilled.parting = DrillParting();
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown) << "what came in fits";
  drilled.given_fits = false;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::other_branches);
  wrong.cause = ProgramCause::summed_loss;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::summed_loss);
}

TEST(DrillCause, WhereEachSampleDecidesNoRankGoesAWayOfItsOwn) {
  const auto using_ones = [](const std::vector<std::string>& names) {
    DrillRank made;
    for (const std::string& name : names) made.parameters.push_back({name, {}, {}});
    return made;
  };
  const std::vector<DrillRank> ranks = {using_ones({"a", "b"}), using_ones({"a", "c"})};
  ASSERT_TRUE(other_branch(ranks, using_ones({"a", "b", "c"})));
  EXPECT_TRUE(other_branch(ranks, using_ones({"a", "b", "c"}))->together);
  const auto found = other_branch(ranks, using_ones({"a", "b"}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->parameter, "b");
  EXPECT_EQ(found->ranks, std::vector<int64_t>{0});
  EXPECT_TRUE(found->one);
  EXPECT_FALSE(found->together);
  EXPECT_FALSE(other_branch({ranks[0], ranks[0]}, using_ones({"a", "b"})));
  const auto alone = other_branch({ranks[0], ranks[0]}, using_ones({"a", "b", "d"}));
  ASSERT_TRUE(alone) << "by its own batch one device went another way";
  EXPECT_EQ(alone->parameter, "d");
  EXPECT_TRUE(alone->ranks.empty());
}

TEST(DrillCause, WhatEachRankKeepsIsTold) {
  const auto given = [](std::vector<double> rows) {
    DrillCall made;
    const auto count = static_cast<int64_t>(rows.size()) / 2;
    const double sum = std::accumulate(rows.begin(), rows.end(), 0.0);
    made.wholes.push_back(
        {"", "", false, {{count, 3}, ElementNorms{sum, sum, sum, sum}, rows, {}}});
    return made;
  };
  const DrillCall a = given({1, 2}), b = given({3, 4}), both = given({1, 2, 3, 4}),
                  other = given({5, 6});
  EXPECT_FALSE(differing_whole({{&a, &b}, &both})) << "rows of samples";
  EXPECT_FALSE(differing_whole({{&a, &a}, &a})) << "alike";
  EXPECT_FALSE(differing_whole({{&a, &a}, &other})) << "alike on all ranks";
  ASSERT_TRUE(differing_whole({{&a, &b}, &other}));
  EXPECT_EQ(differing_whole({{&a, &b}, &other})->place.function, "");
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::forward;
  drilled.whole = DifferingWhole();
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::unknown) << "what came in differs";
  drilled.given_fits = true;
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::own_constants);
  drilled.place.function = "torch.nn.functional.batch_norm";
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::local_batch_norm);
  drilled.weights = {0.3, 0.4};
  drilled.factors = ScalarFactors{{1.1, 0.7}, 1};
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::loss_scaled_apart);
}

TEST(DrillCause, WeightsThatRanksChangeWithinTheStepAreTold) {
  const auto later = [](double value, size_t call) {
    DrillRank made;
    const std::vector<double> first = {1, 1, 1, 1, 2};
    made.parameters.push_back({"w", first, first, std::vector<double>{value, 1, 1, 1, 2}, call});
    return made;
  };
  const std::vector<DrillRank> ranks = {later(3, 7), later(4, 7)};
  EXPECT_EQ(changed_apart(ranks, later(5, 7), 9), "w");
  EXPECT_EQ(changed_apart(ranks, later(5, 7), 6), "") << "what is wrong came before";
  EXPECT_EQ(changed_apart({later(3, 7), later(3, 7)}, later(5, 7), 9), "") << "alike on all";
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::forward;
  drilled.changed_apart = "w";
  EXPECT_EQ(with_cause(drilled, {}, wrong).cause, ProgramCause::own_weights);
}

TEST(DrillCause, AMeanOfElementsDividesByTheirNumber) {
  const auto given = [](double elements) {
    DrillCall made, mean;
    made.outputs = {{{static_cast<int64_t>(elements)}, ElementNorms{6, 6, 6, 6}, {}, {}}};
    mean.name = "torch.Tensor.mean";
    mean.inputs = {0};
    mean.outputs = {{{}, ElementNorms{6 / elements, 1, 1, 1}, {}, {}}};
    return std::pair{made, mean};
  };
  const auto [a_made, a] = given(2);
  const auto [b_made, b] = given(3);
  auto [one_made, one] = given(5);
  const auto found = scalar_factors({{&a, &b}, &one}, {{&a_made, &b_made}, &one_made});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<double>{1.0 / 2, 1.0 / 3}));
  EXPECT_EQ(found->one, 1.0 / 5);
  one.outputs[0].norms->sum = 7;
  EXPECT_FALSE(scalar_factors({{&a, &b}, &one}, {{&a_made, &b_made}, &one_made})) << "of others";
}

TEST(DrillCause, NumbersThatAllRanksShareAreNobodysOwn) {
  DrillCall a, b, one;
  a.numbers = {0.1, 2.5};
  b.numbers = {0.1, 2.5};
  one.numbers = {0.1, 7.5};
  const auto shared = differing_numbers({{&a, &b}, &one});
  ASSERT_TRUE(shared);
  EXPECT_TRUE(shared->shared);
  EXPECT_EQ(shared->one, 7.5);
  one.numbers[1] = 2.5 + 1e-15;
  EXPECT_FALSE(differing_numbers({{&a, &b}, &one})) << "rounding";
  one.numbers[1] = 7.5;
  b.numbers[1] = 3.5;
  const auto found = differing_numbers({{&a, &b}, &one});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<double>{2.5, 3.5}));
  EXPECT_EQ(found->one, 7.5);
  b.numbers.pop_back();
  EXPECT_FALSE(differing_numbers({{&a, &b}, &one})) << "other calls";
}

TEST(DrillCause, UpdatesOfAnOptimizerThatExchangesGradients) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.stage = DrillStage::update;
  drilled.world = 3;
  ProgramStep step;
  step.within_step = 1;
  const auto cause = [&](std::optional<double> ratio) {
    drilled.ratio = ratio;
    return with_cause(drilled, step, wrong).cause;
  };
  EXPECT_EQ(cause(3), ProgramCause::not_divided);
  EXPECT_EQ(cause(1.0 / 3), ProgramCause::divided_twice);
  EXPECT_EQ(cause(2), ProgramCause::unknown);
  EXPECT_EQ(cause(std::nullopt), ProgramCause::unknown);
  step.within_step = 0;
  EXPECT_EQ(cause(3), ProgramCause::unknown);
}

}  // namespace
}  // namespace lockstep
