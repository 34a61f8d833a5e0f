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
};

Trained trained_by_hand() {
  Trained made;
  for (ProgramRank& rank : made.ranks) by_hand(&rank);
  by_hand(&made.alone);
  return made;
}

TEST(JudgeUpdate, ARateOfOneLayerIsNoGradientThatNobodyDivided) {
  Trained trained = trained_by_hand();
  trained.change([](ProgramStep* step) {
    step->updates[1] = sketch_of(0.6);
    step->params[1] = sketch_of(2.5);
  });
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::lr_scaled);
  EXPECT_EQ(found.entry, "parameter bias");
}

TEST(JudgeUpdate, NoFactorOfItIsAnotherUpdate) {
  Trained trained = trained_by_hand();
  trained.change([](ProgramStep* step) {
    step->updates[1] = sketch_of(0.7);
    step->params[1] = sketch_of(2.5);
  });
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.cause, ProgramCause::other_update);
}

TEST(JudgeUpdate, UpdatesTellWhereGradientsAreThoseOfOneRankYet) {
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
TEST(JudgeUpdate, WhatComesOfGradientsThatAgreeIsOfNoOtherSamples) {
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
TEST(JudgeUpdate, AGradientOfOneRankThatIsThatOfOneDeviceProvesNothing) {
  Trained trained = trained_by_hand();
  trained.change([](ProgramStep* step) { step->params[1] = sketch_of(2.5); });
  trained.ranks[1].steps[1].samples = {"another"};
  trained.ranks[1].steps[1].grad_hashes = {"of its own", "samples"};
  const ProgramFinding found = judge_one_device(trained.ranks, trained.alone);
  EXPECT_EQ(found.verdict, Verdict::inconclusive) << found.words;
}

// As those of a model that another step trained, or behind a layer that begins at nothing.
TEST(JudgeUpdate, AGradientThatWasNothingIsNoRounding) {
  Trained trained = trained_by_hand();
  for (ProgramRank& rank : trained.ranks) rank.steps[0].grads[1] = sketch_of(0);
  trained.alone.steps[0].grads[1] = sketch_of(0);
  trained.change([](ProgramStep* step) { step->params[1] = sketch_of(2.5); });
  EXPECT_EQ(judge_one_device(trained.ranks, trained.alone).entry, "parameter bias");
}

TEST(JudgeUpdate, WhatRoundingMakesOfAnUpdateIsLeftOut) {
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

}  // namespace
}  // namespace lockstep
