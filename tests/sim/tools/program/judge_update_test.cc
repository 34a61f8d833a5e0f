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
    rank.steps[0].updates[0] = sketch_of(0.3);
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

// One device that trained on rank 0's samples has its gradients, which is no agreement.
TEST(ProgramUpdate, OfOtherSamplesNobodyIsAccused) {
  Ranks ranks = three();
  ProgramRank single = one();
  make_by_hand(&ranks, &single);
  single.steps[0].samples = ranks[0].steps[0].samples;
  for (ProgramRank& rank : ranks) rank.steps[0].params[0] = sketch_of(3.8);
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
