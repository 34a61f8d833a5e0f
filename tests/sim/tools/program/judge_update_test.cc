#include "sim/tools/program/judge_update.h"

#include <gtest/gtest.h>

#include "sim/tools/program/judge.h"
#include "tests/sim/tools/program/judged_ranks.h"

namespace lockstep {
namespace {

using judged::one;
using judged::Ranks;
using judged::sketch_of;
using judged::three;

void by_hand(ProgramRank* rank) {
  for (ProgramStep& step : rank->steps) {
    step.by_hand = true;
    step.lr.clear();
    step.updates = {sketch_of(0.1), sketch_of(0.2)};
  }
}

struct Trained {
  Ranks ranks = three();
  ProgramRank alone = one();

  // Of the last step of every rank: what its update is, and that of weights.
  template <class F>
  void change(F change) {
    for (ProgramRank& rank : ranks) change(&rank.steps[1]);
  }
  void change_bias(double update) {
    change([update](ProgramStep* step) {
      step->updates[1] = sketch_of(update);
      step->params[1] = sketch_of(2.5);
    });
  }
};

Trained trained_by_hand() {
  Trained made;
  for (ProgramRank& rank : made.ranks) by_hand(&rank);
  by_hand(&made.alone);
  return made;
}

TEST(ProgramUpdate, ARateOfOneLayerIsNoGradientThatNobodyDivided) {
  Trained trained = trained_by_hand();
  trained.change_bias(0.6);
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::lr_scaled);
  EXPECT_EQ(found.entry, "parameter bias");
}

TEST(ProgramUpdate, NoFactorOfItIsAnotherUpdate) {
  Trained trained = trained_by_hand();
  trained.change_bias(0.7);
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.cause, ProgramCause::other_update);
}

TEST(ProgramUpdate, UpdatesTellWhereGradientsAreThoseOfOneRankYet) {
  Trained trained = trained_by_hand();
  trained.change([](ProgramStep* step) {
    step->grads = {sketch_of(7), sketch_of(-2)};
    step->updates = {sketch_of(0.3), sketch_of(0.6)};
    step->params[0] = sketch_of(5);
  });
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.cause, ProgramCause::not_divided);
  EXPECT_EQ(found.entry, "gradient of weight");
}

// A batch along the second dimension has other rows.
TEST(ProgramUpdate, WhatComesOfGradientsThatAgreeIsOfNoOtherSamples) {
  Trained trained = trained_by_hand();
  trained.change([](ProgramStep* step) {
    step->samples = {"row of a rank"};
    step->params[1] = sketch_of(2.5);
  });
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.entry, "parameter bias");
}

// Which may cut the batch of rank 0 by hand.
TEST(ProgramUpdate, AGradientOfOneRankThatIsThatOfOneDeviceProvesNothing) {
  Trained trained = trained_by_hand();
  trained.change([](ProgramStep* step) { step->params[1] = sketch_of(2.5); });
  trained.ranks[1].steps[1].samples = {"another"};
  trained.ranks[1].steps[1].grad_hashes = {"of its own", "samples"};
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.verdict, Verdict::inconclusive) << found.words;
}

// As those of a model that another step trained, or behind a layer that begins at nothing.
TEST(ProgramUpdate, AGradientThatWasNothingIsNoRounding) {
  Trained trained = trained_by_hand();
  for (ProgramRank& rank : trained.ranks) rank.steps[0].grads[1] = sketch_of(0);
  trained.alone.steps[0].grads[1] = sketch_of(0);
  trained.change([](ProgramStep* step) { step->params[1] = sketch_of(2.5); });
  EXPECT_EQ(judge_one_device(trained.ranks, trained.alone).entry, "parameter bias");
}

TEST(ProgramUpdate, WhatRoundingMakesOfAnUpdateIsLeftOut) {
  for (const double of_one : {0.0, 1e-17}) {
    Trained trained = trained_by_hand();
    trained.change([](ProgramStep* step) {
      step->grads = {sketch_of(7), sketch_of(1e-16)};
      step->updates[1] = sketch_of(0.9);
      step->params[1] = sketch_of(2.5);
    });
    trained.alone.steps[1].grads[1] = sketch_of(of_one);
    EXPECT_EQ(judge_one_device(trained.ranks, trained.alone).verdict, Verdict::pass);
  }
}

template <class F>
void for_all(Ranks* ranks, ProgramRank* single, F change) {
  for (ProgramRank& rank : *ranks)
    for (ProgramStep& step : rank.steps) change(&step);
  for (ProgramStep& step : single->steps) change(&step);
}

void make_by_hand(Ranks* ranks, ProgramRank* single) {
  for_all(ranks, single, [](ProgramStep* step) {
    step->by_hand = true;
    step->options.clear();
    step->updates = {sketch_of(0.1), sketch_of(0.05)};
  });
}

TEST(ProgramUpdate, ByHandTheWeightsDecideAndBothControlsFail) {
  Ranks ranks = three();
  ProgramRank single = one();
  make_by_hand(&ranks, &single);
  for (ProgramRank& rank : ranks)
    rank.steps[1].grads[0] = sketch_of(3);  // divided while it is used
  EXPECT_EQ(judge_one_device(ranks, single).verdict, Verdict::pass);
  EXPECT_TRUE(one_device_control_fails(ranks, single));
  for (ProgramRank& rank : ranks) rank.steps[1].params[0] = sketch_of(4.2);
  const ProgramFinding found = judge_one_device(ranks, single);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::not_divided);
  EXPECT_EQ(found.step, 2);
}

TEST(ProgramUpdate, ByHandARateIsWhatTheUpdateIsOfTheGradient) {
  Ranks ranks = three();
  ProgramRank single = one();
  make_by_hand(&ranks, &single);
  for (ProgramRank& rank : ranks) {
    rank.steps[0].params[0] = sketch_of(3.8);
    rank.steps[0].lr = {0.3};
  }
  EXPECT_EQ(judge_one_device(ranks, single).cause, ProgramCause::lr_scaled);
  for (ProgramRank& rank : ranks) rank.steps[0].lr.clear();  // none is known: no other rate
  EXPECT_NE(judge_one_device(ranks, single).cause, ProgramCause::lr_scaled);
}

// As a copy that was summed, while each rank's own gradient stays as backward left it.
TEST(ProgramUpdate, ByAnotherGradientTheUpdatesStandForIt) {
  Ranks ranks = three();
  ProgramRank single = one();
  make_by_hand(&ranks, &single);
  EXPECT_FALSE(with_updates(ranks, single));
  for (ProgramRank& rank : ranks) {
    rank.steps[0].grads[0] = sketch_of(static_cast<double>(7 + rank.rank));
    rank.steps[0].updates = {sketch_of(0.3), sketch_of(0.15)};
    rank.steps[0].params[0] = sketch_of(3.8);
    rank.steps[0].lr.clear();
  }
  const auto by_updates = with_updates(ranks, single);
  ASSERT_TRUE(by_updates);
  EXPECT_EQ(by_updates->ranks[1].steps[0].grads[0], sketch_of(0.3));
  EXPECT_EQ(by_updates->one.steps[0].grads[0], sketch_of(0.1));
  EXPECT_EQ(by_updates->one.steps[1].grads[0], sketch_of(1)) << "along the gradients";
  const ProgramFinding found = judge_one_device(ranks, single);
  EXPECT_EQ(found.cause, ProgramCause::not_divided);
  EXPECT_NE(found.words.find("3 times that of one device"), std::string::npos) << found.words;
}

TEST(ProgramUpdate, TheRateThatDiffersIsNamedWithItsGroup) {
  Trained trained;
  for (ProgramStep* step : {&trained.ranks[0].steps[1], &trained.ranks[1].steps[1],
                            &trained.ranks[2].steps[1], &trained.alone.steps[1]}) {
    step->groups = {0, 1};
    step->lr = {0.1, 0.2};
  }
  trained.alone.steps[1].lr[1] = 0.1;
  trained.change([](ProgramStep* step) { step->params[1] = sketch_of(2.5); });
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.cause, ProgramCause::lr_scaled);
  EXPECT_NE(found.words.find("learning rate 0.2 in group 1, of one device 0.1"), std::string::npos)
      << found.words;
}

// One device that trained on rank 0's samples has its gradients, which is no agreement.
TEST(ProgramUpdate, OfOtherSamplesNobodyIsAccused) {
  Ranks ranks = three();
  ProgramRank single = one();
  make_by_hand(&ranks, &single);
  single.steps[0].samples = ranks[0].steps[0].samples;
  for (ProgramRank& rank : ranks) {
    rank.steps[0].params[0] = sketch_of(3.8);
    rank.steps[0].grad_hashes[0] = std::to_string(rank.rank);
  }
  const ProgramFinding found = judge_one_device(ranks, single);
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_TRUE(found.other_data);
}

TEST(ProgramUpdate, ByHandAnAveragingIsPartOfTheStepThatItFollows) {
  Ranks ranks = three();
  ProgramRank single = one();
  make_by_hand(&ranks, &single);
  for (ProgramRank& rank : ranks) rank.steps[0].param_hashes = {std::to_string(rank.rank), "p1"};
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail);
  for (ProgramRank& rank : ranks) rank.steps[1].within_step = 1;
  const ProgramFinding found = judge_replicas(ranks);
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_NE(found.words.find("a combination of all their parameters, first before step 3"),
            std::string::npos)
      << found.words;
}

}  // namespace
}  // namespace lockstep
