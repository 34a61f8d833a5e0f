#include "sim/tools/program/judge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/base/file.h"
#include "sim/tools/program/recording.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/tools/program/judged_ranks.h"

namespace lockstep {
namespace {

using judged::changed;
using judged::made_rank;
using judged::one;
using judged::Ranks;
using judged::sketch_of;
using judged::three;

TEST(ProgramJudge, WhatAgreesPassesAndBothControlsFail) {
  EXPECT_EQ(judge_replicas(three()).verdict, Verdict::pass);
  EXPECT_EQ(judge_one_device(three(), one()).verdict, Verdict::pass);
  EXPECT_TRUE(replica_control_fails(three()));
  EXPECT_TRUE(one_device_control_fails(three(), one()));
}

TEST(ProgramJudge, RanksThatSplitNoBatchProveNothing) {
  Ranks ranks = three();
  for (ProgramRank& rank : ranks)
    for (ProgramStep& step : rank.steps) step.samples = {"a", "b"};
  const ProgramFinding found = judge_one_device(ranks, one());
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.cause, ProgramCause::same_samples);
}

TEST(ProgramJudge, GradientsThatAreAllZeroProveNothing) {
  const auto stilled = [](ProgramRank rank) {
    for (ProgramStep& step : rank.steps)
      for (Sketch& gradient : step.grads) gradient = std::vector<double>(5, 0.0);
    return rank;
  };
  Ranks ranks;
  for (const ProgramRank& rank : three()) ranks.push_back(stilled(rank));
  EXPECT_EQ(judge_one_device(ranks, stilled(one())).verdict, Verdict::inconclusive);
}

TEST(ProgramJudge, AReplicaThatDiffersIsFoundWithStepAndParameter) {
  Ranks ranks = three();
  ranks[2].steps[1].param_hashes[1] = "x";
  const ProgramFinding found = judge_replicas(ranks);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.entry, "parameter bias");
  EXPECT_EQ(found.cause, ProgramCause::unknown);
  ranks[2].steps[1].grad_hashes[1] = "x";
  ranks[0].steps[1].unsynced = true;
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::no_sync_at_step);
  ranks[0].steps[1].unsynced = false;
  ranks[0].steps[1].not_waited = true;
  ranks[0].steps[1].unreduced = {"bias"};
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::not_waited);
}

TEST(ProgramJudge, FactorsOfGradientsHaveCauses) {
  const auto scaled = [](double factor) {
    return changed([=](ProgramStep* step) { step->grads[0] = sketch_of(factor); });
  };
  ProgramFinding found = judge_one_device(scaled(1.0 / 3), one());
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.entry, "gradient of weight");
  EXPECT_EQ(found.cause, ProgramCause::divided_twice);
  ProgramRank summed = one();
  summed.summed = true;
  EXPECT_EQ(judge_one_device(scaled(1.0 / 3), summed).cause, ProgramCause::summed_loss);
  EXPECT_EQ(judge_one_device(scaled(3), one()).cause, ProgramCause::not_divided);
  EXPECT_EQ(judge_one_device(scaled(1.7), one()).cause, ProgramCause::unknown);
}

TEST(ProgramJudge, GradientsThatNoFactorExplainsHaveCauses) {
  const auto odd = [](auto change) {
    return changed([=](ProgramStep* step) {
      step->grads[0] = sketch_of(1.7);
      change(step);
    });
  };
  EXPECT_EQ(
      judge_one_device(odd([](ProgramStep* step) { step->clipped_early = true; }), one()).cause,
      ProgramCause::clipped_before_sum);
  Ranks uneven = odd([](ProgramStep*) {});
  uneven[0].steps[1].samples = {"2/0", "2/1"};
  uneven[1].steps[1].samples = {};
  EXPECT_EQ(judge_one_device(uneven, one()).cause, ProgramCause::uneven_batches);
  const auto doubled = [](int64_t backwards) {
    return changed([=](ProgramStep* step) {
      step->grads[0] = sketch_of(2);
      step->backwards = backwards;
    });
  };
  EXPECT_EQ(judge_one_device(doubled(2), one()).cause, ProgramCause::accumulation_divided);
  EXPECT_EQ(judge_one_device(doubled(1), one()).cause, ProgramCause::unknown);
}

TEST(ProgramJudge, ReplicasThatDifferHaveCauses) {
  const auto differ = [](size_t step, auto change) {
    Ranks ranks = three();
    ranks[1].steps[step].param_hashes[0] = ranks[1].steps[step].grad_hashes[0] = "x";
    change(&ranks[0].steps[step], &ranks[1].steps[step]);
    return judge_replicas(ranks).cause;
  };
  const auto named = [&](auto member, const char* name) {
    return differ(1, [&](ProgramStep* first, ProgramStep*) { first->*member = {name}; });
  };
  EXPECT_EQ(named(&ProgramStep::replaced, "weight"), ProgramCause::parameter_replaced);
  EXPECT_EQ(named(&ProgramStep::unused, "bias"), ProgramCause::unused_parameter);
  EXPECT_EQ(named(&ProgramStep::unreduced, "weight"), ProgramCause::not_reduced);
  EXPECT_EQ(named(&ProgramStep::unreduced, "bias"), ProgramCause::unknown);
  const auto start = [](int64_t loads) {
    return [=](ProgramStep* first, ProgramStep* other) {
      first->ddp_forwards = 0;  // it would have made them alike
      other->before[0] = sketch_of(9);
      other->model_loads = loads;
    };
  };
  EXPECT_EQ(differ(0, start(0)), ProgramCause::different_start);
  EXPECT_EQ(differ(0, start(1)), ProgramCause::state_on_one_rank);
  EXPECT_EQ(differ(0, [](ProgramStep*, ProgramStep* other) { other->model_loads = 1; }),
            ProgramCause::unknown);  // a broadcast had healed it
  EXPECT_EQ(differ(1,
                   [](ProgramStep* first, ProgramStep* other) {
                     first->grad_hashes = other->grad_hashes;
                     first->optimizer_loads = 1;
                   }),
            ProgramCause::state_on_one_rank);
}

TEST(ProgramJudge, RanksThatUpdateOtherwiseAreTold) {
  const auto differ = [](bool gradients, auto change) {
    Ranks ranks = three();
    ranks[2].steps[1].param_hashes[0] = "x";
    if (gradients) ranks[2].steps[1].grad_hashes[0] = "x";
    change(&ranks[2].steps[1]);
    return judge_replicas(ranks);
  };
  const auto cause = [&](bool gradients, auto change) { return differ(gradients, change).cause; };
  EXPECT_EQ(cause(false, [](ProgramStep* step) { step->optimizer = 1; }),
            ProgramCause::optimizer_made_anew);
  const ProgramFinding options =
      differ(false, [](ProgramStep* step) { step->options = {"0 lr=0.2"}; });
  EXPECT_EQ(options.cause, ProgramCause::other_options);
  EXPECT_NE(options.words.find("lr=0.1 in group 0, on rank 2 lr=0.2"), std::string::npos);
  EXPECT_EQ(cause(false, [](ProgramStep* step) { step->before_hash = "x"; }),
            ProgramCause::changed_between_steps);
  EXPECT_EQ(cause(true, [](ProgramStep* step) { step->before_hash = "x"; }),
            ProgramCause::changed_between_steps);
  EXPECT_EQ(cause(true, [](ProgramStep* step) { step->carried = true; }),
            ProgramCause::gradients_kept);
  EXPECT_EQ(cause(false, [](ProgramStep* step) { step->carried = true; }), ProgramCause::unknown);
}

TEST(ProgramJudge, WhoStandsAgainstMostRanksIsNamedAndOfTwoNobody) {
  const auto words = [](Ranks ranks, const std::vector<size_t>& others) {
    for (const size_t rank : others) ranks[rank].steps[1].param_hashes[0] = "x";
    return judge_replicas(ranks).words;
  };
  EXPECT_EQ(words(three(), {1}), "rank 1 differs from the other ranks; gradients agree");
  EXPECT_EQ(words(three(), {1, 2}), "rank 0 differs from the other ranks; gradients agree");
  EXPECT_EQ(words({made_rank(0, 2), made_rank(1, 2)}, {1}),
            "ranks 0 and 1 differ; gradients agree");
  Ranks all = three();
  all[2].steps[1].param_hashes[0] = "y";
  EXPECT_EQ(words(all, {1}), "ranks 0, 1 and 2 differ; gradients agree");
  Ranks state = three();
  state[2].steps[1].state_hash = "x";
  EXPECT_EQ(words(state, {}), "rank 2 differs from the other ranks; gradients agree");
}

// A gradient of "weight" differs on one rank; all ranks have named this parameter.
ProgramCause cause_of_names(std::vector<std::string> ProgramStep::*names, const char* parameter) {
  Ranks ranks = three();
  ranks[1].steps[1].param_hashes[0] = ranks[1].steps[1].grad_hashes[0] = "x";
  for (ProgramRank& rank : ranks) rank.steps[1].*names = {parameter};
  return judge_replicas(ranks).cause;
}

TEST(ProgramJudge, AThawedParameterIsTold) {
  EXPECT_EQ(cause_of_names(&ProgramStep::unfrozen, "bias"), ProgramCause::unknown);
  EXPECT_EQ(cause_of_names(&ProgramStep::unfrozen, "weight"), ProgramCause::unfrozen_after_ddp);
}

TEST(ProgramJudge, AParameterAddedWithinAWrappedModuleIsOutside) {
  EXPECT_EQ(cause_of_names(&ProgramStep::unheld, "bias"), ProgramCause::unknown);
  EXPECT_EQ(cause_of_names(&ProgramStep::unheld, "weight"), ProgramCause::outside_ddp);
}

TEST(ProgramJudge, GradientsThatAreMultiplesAreScaledApart) {
  Ranks ranks = three();
  ProgramStep& step = ranks[2].steps[1];
  step.param_hashes[0] = "x";
  step.grad_hashes = {"x", "y"};
  step.grads = {sketch_of(2), sketch_of(1)};
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::scaled_apart);
  step.grads = {sketch_of(0), sketch_of(0)};
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::scaled_apart) << "zeroed";
  step.grads = {sketch_of(2), sketch_of(1.1)};
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::unknown);
  step.unreduced = {"weight"};  // on that rank alone
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::not_reduced);
}

TEST(ProgramJudge, WhatAGradientWasGivenToIsTold) {
  Ranks ranks = changed([](ProgramStep* step) { step->grads[0] = sketch_of(1.3); });
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::unknown);
  ranks[1].constants = "x";
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::own_constants);
  ranks[0].steps[1].reduced_again = {"weight"};
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::reduced_again);
  ranks[0].steps[1].no_sums = {"weight"};
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::no_sum);
  ranks[1].steps[1].refrozen = {"weight"};
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::frozen_after_ddp);
}

TEST(ProgramJudge, HooksThatChangeGradientsOfRanksOtherwiseAreTold) {
  const auto cause_of = [](const std::vector<std::vector<HookedGradient>>& hooked) {
    Ranks ranks = changed([](ProgramStep* step) { step->grads[0] = sketch_of(0.7); });
    for (size_t rank = 0; rank < hooked.size(); ++rank) ranks[rank].steps[1].hooked = hooked[rank];
    return judge_one_device(ranks, one()).cause;
  };
  const HookedGradient weight{"weight", 0.5}, bias{"bias", 0.5}, clamped{"weight", std::nullopt};
  EXPECT_EQ(cause_of({{weight}, {weight}, {weight}}), ProgramCause::unknown) << "all by one half";
  EXPECT_EQ(cause_of({{}, {}, {weight, bias}}), ProgramCause::scaled_apart);
  EXPECT_EQ(cause_of({{}, {}, {weight, {"bias", 0.3}}}), ProgramCause::clipped_before_sum);
  EXPECT_EQ(cause_of({{clamped}, {clamped}, {clamped}}), ProgramCause::clipped_before_sum);
  EXPECT_EQ(cause_of({{bias}, {}, {}}), ProgramCause::unknown) << "of another parameter";
}

TEST(ProgramJudge, DropoutOfSomeRanksAloneFailsThoughItIsOff) {
  Ranks ranks = changed([](ProgramStep* step) { step->dropouts = 2; });
  EXPECT_EQ(judge_one_device(ranks, one()).verdict, Verdict::pass);
  ranks[1].steps[1].dropouts = 1;  // a matter of chance, as where layers are skipped
  EXPECT_EQ(judge_one_device(ranks, one()).verdict, Verdict::pass);
  ranks[1].steps[1].dropouts = 0;
  const ProgramFinding found = judge_one_device(ranks, one());
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::other_mode);
  EXPECT_EQ(found.step, 2);
  ranks[1].steps[1].forwards = 2;  // of another number of forwards nothing is said
  EXPECT_EQ(judge_one_device(ranks, one()).verdict, Verdict::pass);
}

TEST(ProgramJudge, OneThatNoModelHoldsIsOutsideWhateverElseIsUnused) {
  Ranks ranks = three();
  ranks[1].steps[1].param_hashes[0] = ranks[1].steps[1].grad_hashes[0] = "x";
  for (ProgramRank& rank : ranks) {
    rank.steps[1].names[0] = "parameter 0";
    rank.steps[1].unused = {"bias"};
  }
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::outside_ddp);
}

TEST(ProgramJudge, GradientsThatOneRankKeptAreToldWhereRanksAgree) {
  Ranks ranks = changed([](ProgramStep* step) { step->grads[0] = sketch_of(1.3); });
  for (ProgramRank& rank : ranks) rank.steps[1].gathered = true;
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::gathered_as_constants);
  ranks[2].steps[1].carried = true;
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::gradients_kept);
}

TEST(ProgramJudge, ARankThatLeavesOutAnUpdateIsTold) {
  Ranks ranks = three();
  for (ProgramRank& rank : ranks) rank.backwards = 2;
  ranks[1].steps.pop_back();
  ranks[0].steps[1].param_hashes[0] = ranks[2].steps[1].param_hashes[0] = "later";
  const ProgramFinding found = judge_replicas(ranks);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::update_on_one_rank);
  EXPECT_EQ(found.step, 2);
  ranks[1].broadcasts = 1;  // it may get its weights otherwise
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::inconclusive);
  ranks[1].broadcasts = 0;
  ranks[1].backwards = 1;
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::inconclusive);
}

TEST(ProgramJudge, ARankThatLeavesOutOneOfTwoOptimizersIsTold) {
  Ranks ranks = three();
  for (ProgramRank& rank : ranks) {
    rank.backwards = 2;
    rank.steps[1].optimizer = 1;
  }
  ranks[1].steps.erase(ranks[1].steps.begin());  // its last step is that of the others
  const ProgramFinding found = judge_replicas(ranks);
  EXPECT_EQ(found.cause, ProgramCause::update_on_one_rank);
  EXPECT_EQ(found.step, 1);
}

TEST(ProgramJudge, ARankThatIsSentItsWeightsIsNotAccused) {
  Ranks ranks = three();
  ranks[1].steps.clear();
  ranks[1].backwards = 2;
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail);
  ranks[1].broadcasts = 2;
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::inconclusive);
}

TEST(ProgramJudge, OrderOfSamplesIsJudgedWhereAllElseAgrees) {
  Ranks ranks = three();
  ranks[0].padded = 1;
  ProgramFinding found = judge_one_device(ranks, one());
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.cause, ProgramCause::padded_samples);
  ranks[0].stale_epochs = 1;
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::epoch_never_set);
  ProgramRank alone = one();
  for (ProgramRank* rank : {&ranks[0], &ranks[1], &ranks[2], &alone}) {
    rank->steps[1].samples = rank->steps[0].samples;
    for (ProgramStep& step : rank->steps) step.position = 1, step.batches = 4;
    rank->steps[1].optimizer_loads = 1;
  }
  found = judge_one_device(ranks, alone);
  EXPECT_EQ(found.cause, ProgramCause::loader_state_lost);
  EXPECT_EQ(found.step, 2);
  ranks[0].steps[0].batches = 1;  // the epoch was over: it may begin anew
  EXPECT_EQ(judge_one_device(ranks, alone).cause, ProgramCause::epoch_never_set);
}

TEST(ProgramJudge, ARunThatBrokeOffMayHaveACause) {
  Ranks ranks = three();
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::none);
  ranks[1].refused = true;
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::none);
  ranks[1].steps[1].unused = {"bias"};
  const ProgramFinding found = judge_broken_off(ranks);
  EXPECT_EQ(found.cause, ProgramCause::unused_parameter);
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.entry, "gradient of bias");
  ranks[1].steps[1].replaced = {"bias"};
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::parameter_replaced);
  ranks[1].steps[1].unused.clear();  // the old one has a gradient still
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::parameter_replaced);
  ranks[1].steps[1].refrozen = {"weight"};
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::frozen_after_ddp);
  EXPECT_EQ(judge_broken_off(ranks).entry, "gradient of weight");
  ranks[1].ended = false;
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::none);
}

TEST(ProgramJudge, EveryCauseStandsInTheDocsWithWhatToDo) {
  const auto text = read_foreign_file(LOCKSTEP_SOURCE_DIR "/docs/programs.md", 1 << 20);
  ASSERT_TRUE(text);
  for (int number = 1; number <= static_cast<int>(kLastProgramCause); ++number) {
    const ProgramCauseRow& row = row_of(static_cast<ProgramCause>(number));
    EXPECT_NE(
        text.value().find(fmt::format("| `{}` | {} | {} |", row.name, row.meaning, row.advice)),
        std::string::npos)
        << row.name;
  }
  // Without `unknown`, which is none that it knows.
  const auto first_screen = read_foreign_file(LOCKSTEP_SOURCE_DIR "/README.md", 1 << 20);
  ASSERT_TRUE(first_screen);
  EXPECT_NE(
      first_screen.value().find(fmt::format("{} causes", static_cast<int>(kLastProgramCause) - 1)),
      std::string::npos);
}

TEST(ProgramJudge, AParameterMayBeInAnotherGroupThanOnOtherRanks) {
  Ranks ranks = three();
  for (ProgramRank& rank : ranks) {
    rank.steps[1].options = {"0 weight_decay=0.1", "1 weight_decay=0.0"};
    rank.steps[1].groups = {0, rank.rank == 2 ? 1 : 0};
  }
  ranks[2].steps[1].param_hashes[1] = "other";
  const ProgramFinding groups = judge_replicas(ranks);
  EXPECT_EQ(groups.cause, ProgramCause::other_options);
  EXPECT_NE(groups.words.find("bias has weight_decay=0.1 in its group, on rank 2 weight_decay=0.0"),
            std::string::npos)
      << groups.words;
}

TEST(ProgramJudge, AParameterMayBeInAnotherGroupThanOnOneDevice) {
  const auto in_groups = [](std::vector<int64_t> groups) {
    return [=](ProgramStep* step) {
      step->options = {"0 weight_decay=0.1", "1 weight_decay=0.0"};
      step->groups = groups;
    };
  };
  Ranks ranks = changed(in_groups({0, 1}));
  for (ProgramRank& rank : ranks) rank.steps[1].params[0] = sketch_of(5);
  ProgramRank alone = one();
  in_groups({1, 1})(&alone.steps[1]);
  const ProgramFinding found = judge_one_device(ranks, alone);
  EXPECT_EQ(found.cause, ProgramCause::option_scaled);
  EXPECT_NE(found.words.find("weight has weight_decay=0.1 in its group, of one device"),
            std::string::npos)
      << found.words;
}

TEST(ProgramJudge, AnUpdateThatDiffersAfterEqualGradientsIsOne) {
  const Ranks ranks = changed([](ProgramStep* step) {
    step->params[0] = sketch_of(5);
    step->lr = {0.3};
  });
  const ProgramFinding found = judge_one_device(ranks, one());
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.entry, "parameter weight");
  EXPECT_EQ(found.cause, ProgramCause::lr_scaled);
  const auto with_options = [](ProgramStep* step) {
    step->params[0] = sketch_of(5);
    step->options = {"0 weight_decay=0.3"};
  };
  EXPECT_EQ(judge_one_device(changed(with_options), one()).cause, ProgramCause::option_scaled);
  Ranks owners = ranks;
  owners[2].steps[1].options = {"0 lr=0.3"};
  EXPECT_EQ(judge_one_device(owners, one()).cause, ProgramCause::other_options);
}

TEST(ProgramJudge, WhatMayHaveAnotherReasonAccusesNobody) {
  const auto off = [](double factor) {
    return changed([=](ProgramStep* step) { step->grads[0] = sketch_of(factor); });
  };
  EXPECT_EQ(judge_one_device(off(1 + 1e-7), one()).verdict,
            Verdict::inconclusive);  // a cast
  Ranks draws = off(2);
  draws[0].draws = true;
  EXPECT_EQ(judge_one_device(draws, one()).verdict, Verdict::inconclusive);
  Ranks other_samples = off(2);
  other_samples[1].steps[1].samples = {"7"};
  EXPECT_EQ(judge_one_device(other_samples, one()).verdict, Verdict::inconclusive);
  ProgramRank blind = one();
  for (ProgramStep& step : blind.steps) step.samples.clear();
  EXPECT_EQ(judge_one_device(off(2), blind).verdict, Verdict::inconclusive);
  Ranks sharded = three();
  sharded[1].steps[0].names = {"weight"};
  EXPECT_EQ(judge_replicas(sharded).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_one_device(sharded, one()).verdict, Verdict::inconclusive);
}

TEST(ProgramJudge, MeansOverOtherNumbersOfTargetsAreTold) {
  Ranks ranks = changed([](ProgramStep* step) { step->grads[0] = sketch_of(1.3); });
  for (ProgramRank& rank : ranks) rank.steps[1].targets = {9, 9};
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::unknown);
  ranks[2].steps[1].targets = {9, 7};
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::mean_of_means);
}

TEST(ProgramJudge, DataThatWasHandedOnDecides) {
  const auto off = [](double factor) {
    return changed([=](ProgramStep* step) { step->grads[0] = sketch_of(factor); });
  };
  ProgramFinding before;
  before.verdict = Verdict::inconclusive;
  before.other_data = true;
  before.words = "other samples";
  ProgramRank handed = one();
  EXPECT_EQ(
      judge_handed(three(), handed, before).words,
      "other samples; nor can one device be given the ranks' data: it saw no forward of a model");
  handed.handed = true;
  EXPECT_EQ(judge_handed(three(), handed, before).verdict, Verdict::pass);
  Ranks padded = three(), stale = three();
  padded[0].padded = 1;
  stale[0].stale_epochs = 1;
  EXPECT_EQ(judge_handed(padded, handed, before).verdict, Verdict::pass);
  EXPECT_EQ(judge_handed(stale, handed, before).cause, ProgramCause::epoch_never_set);
  const ProgramFinding undivided = judge_handed(off(3), handed, before);
  EXPECT_EQ(undivided.verdict, Verdict::fail);
  EXPECT_EQ(undivided.cause, ProgramCause::not_divided);
  const ProgramFinding other = judge_handed(off(2.5), handed, before);
  EXPECT_EQ(other.verdict, Verdict::inconclusive);
  EXPECT_TRUE(other.other_data);
  handed.scale_known = false;
  EXPECT_EQ(judge_handed(three(), handed, before).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_handed(off(3), handed, before).verdict, Verdict::inconclusive);
}

TEST(ProgramJudge, UnevenBatchesThatWereHandedOnAreSuspectedAlone) {
  Ranks uneven = changed([](ProgramStep* step) { step->grads[0] = sketch_of(1.7); });
  uneven[0].steps[1].samples = {"2/0", "2/1"};
  uneven[1].steps[1].samples = {};
  ProgramRank handed = one();
  EXPECT_FALSE(suspected_of_handed(uneven, handed));
  handed.handed = true;
  ASSERT_TRUE(suspected_of_handed(uneven, handed));
  EXPECT_EQ(suspected_of_handed(uneven, handed)->cause, ProgramCause::uneven_batches);
  EXPECT_EQ(judge_handed(uneven, handed, {}).cause, ProgramCause::none) << "not proven";
  EXPECT_FALSE(suspected_of_handed(three(), handed));
  handed.scale_known = false;
  EXPECT_FALSE(suspected_of_handed(uneven, handed));
}

TEST(ProgramJudge, RanksThatWereHandedOnAndShareSamplesInEachStepProveNothing) {
  const auto sharing = [](size_t steps) {
    Ranks ranks = three();
    for (size_t step = 0; step < steps; ++step)
      ranks[2].steps[step].samples.push_back(ranks[0].steps[step].samples[0]);
    return ranks;
  };
  ProgramRank handed = one();
  handed.handed = true;
  const ProgramFinding found = judge_handed(sharing(2), handed, {});
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.cause, ProgramCause::same_samples);
  EXPECT_NE(found.words.find("ranks 0 and 2 share 1 of 3 samples"), std::string::npos);
  EXPECT_EQ(judge_handed(sharing(1), handed, {}).verdict, Verdict::pass) << "an accident";
  Ranks repeating = sharing(2);
  repeating[1].steps[0].samples = {"x", "x"};
  EXPECT_EQ(judge_handed(repeating, handed, {}).verdict, Verdict::pass) << "of the data";
}

TEST(ProgramJudge, RanksThatEachHaveAllSamplesInAnOrderOfTheirOwnProveNothing) {
  const std::vector<std::string> all = {"a", "b", "c"};
  Ranks ranks = three();
  for (size_t rank = 0; rank < 3; ++rank) {
    ranks[rank].steps[0].samples = {all[rank]};
    ranks[rank].steps[1].samples = {all[(rank + 1) % 3], all[(rank + 2) % 3]};
  }
  ProgramRank handed = one();
  handed.handed = true;
  EXPECT_EQ(judge_handed(ranks, handed, {}).cause, ProgramCause::same_samples);
  ranks[1].steps[1].samples.push_back("d");
  EXPECT_EQ(judge_handed(ranks, handed, {}).verdict, Verdict::pass) << "d is of one rank alone";
}

TEST(ProgramJudge, BatchesAreHandedOnAsOneOrInTurn) {
  const auto making = [](int64_t backwards) {
    ProgramRank rank = one();
    for (ProgramStep& step : rank.steps) step.backwards = backwards;
    return rank;
  };
  EXPECT_EQ(handed_way(making(2), making(2), 3), HandedWay::together);
  EXPECT_EQ(handed_way(making(2), making(6), 3), HandedWay::in_turn);
  EXPECT_EQ(handed_way(making(2), making(4), 3), HandedWay::none);
  EXPECT_EQ(handed_way(making(2), {}, 3), HandedWay::none);
}

TEST(ProgramJudge, HalfARecordingIsNeverGreen) {
  Ranks cut = three();
  cut[1].ended = false;
  EXPECT_EQ(judge_replicas(cut).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_one_device(cut, one()).verdict, Verdict::inconclusive);
  Ranks shorter = three();
  for (ProgramRank& rank : shorter) rank.steps.pop_back();
  EXPECT_EQ(judge_one_device(shorter, one()).verdict, Verdict::inconclusive);
  Ranks idle = three();
  idle[2].steps.clear();
  idle[2].backwards = 2;
  EXPECT_EQ(judge_replicas(idle).cause, ProgramCause::update_on_one_rank);
  Ranks nothing = three();
  for (ProgramRank& rank : nothing) rank.steps.clear();
  EXPECT_EQ(judge_replicas(nothing).verdict, Verdict::inconclusive);
}

TEST(ProgramRecording, StrangersLinesAreRefused) {
  const TemporaryFolder folder;
  const auto read = [&](const char* text) {
    return read_program_rank(folder.write("r.jsonl", text));
  };
  EXPECT_FALSE(read_program_rank(folder.path() + "/none"));
  EXPECT_FALSE(read("[1]\n"));
  EXPECT_FALSE(read("{\"kind\": \"step\"}\n"));
  EXPECT_FALSE(read("{\"kind\": \"head\", \"rank\": 1e300, \"world\": 2}\n"));
  EXPECT_FALSE(read("{\"kind\": \"head\", \"rank\": 0, \"world\""));
  EXPECT_FALSE(read("{\"kind\": \"other\"}\n"));
  const auto head = read("{\"kind\": \"head\", \"rank\": 1, \"world\": 2}\n");
  ASSERT_TRUE(head);
  EXPECT_FALSE(head.value().ended);
  const auto cut = read("{\"kind\": \"head\", \"rank\": 1, \"world\": 2}\n{\"kind\": \"st");
  ASSERT_TRUE(cut);
  EXPECT_FALSE(cut.value().ended);
  const auto broken = read("{\"kind\": \"head\", \"rank\": 1, \"world\": 2}\n{\"kind\": \"st\n");
  EXPECT_NE(to_text(broken.errors()[0]).find("r.jsonl:2:10: error: is no line of the agent: this"),
            std::string::npos);
  EXPECT_EQ(read("").errors()[0].message, "does not say which rank it is of");
}

}  // namespace
}  // namespace lockstep
