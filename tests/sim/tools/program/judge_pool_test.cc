#include "sim/tools/program/judge_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/tools/program/judge_order.h"
#include "sim/tools/program/judge_parts.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;
using Sets = std::vector<std::vector<std::string>>;

// One that was given these samples, step by step.
ProgramRank trained(int64_t rank, const Sets& samples) {
  ProgramRank made;
  made.rank = rank;
  made.ended = true;
  for (const auto& own : samples) {
    ProgramStep step;
    step.line = "train.py:9";
    step.names = {"weight", "bias"};
    step.grad_hashes = step.param_hashes = {"a", "b"};
    step.samples = own;
    step.position = static_cast<int64_t>(made.steps.size() + 1);
    step.batches = 4;
    step.grads = {std::vector<double>{1, -2, 1, 1, 3}, std::vector<double>{2, 1, 0, -1, 2}};
    step.params = step.before = step.grads;
    made.steps.push_back(step);
  }
  return made;
}

const ProgramRank kAlone = trained(0, {{"0", "1"}, {"2", "3"}});

TEST(ProgramPool, SamplesThatSeveralRanksHaveAndNoneAreTold) {
  const Ranks ranks = {trained(0, {{"0"}, {"1"}}), trained(1, {{"1"}, {"2"}})};
  const ProgramFinding found = judge_pool(ranks, kAlone);
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.cause, ProgramCause::other_shuffles);
  EXPECT_NE(found.words.find("1 are dealt to several ranks and 1 to none"), std::string::npos);
}

TEST(ProgramPool, NobodyIsToldOfWhoIsDealtApartOrDrawsAnew) {
  for (const Sets& second :
       {Sets{{"2"}, {"3"}}, Sets{{"1"}, {"9"}}, Sets{{"1"}, {"1"}}, Sets{{"1"}}}) {
    const Ranks ranks = {trained(0, {{"0"}, {"1"}}), trained(1, second)};
    EXPECT_EQ(judge_pool(ranks, kAlone).verdict, Verdict::pass) << second[0][0];
  }
  const Ranks ranks = {trained(0, {{"0"}, {"1"}}), trained(1, {{"1"}, {"2"}})};
  EXPECT_EQ(judge_pool(ranks, trained(0, {{"0", "1"}, {"1", "2"}})).verdict, Verdict::pass);
}

TEST(ProgramPool, EveryIterationOfALoaderIsAnEpoch) {
  const ProgramRank alone = trained(0, {{"0", "1", "2", "3"}, {"3", "1", "0", "2"}});
  Ranks ranks = {trained(0, {{"0", "2"}, {"0", "1"}}), trained(1, {{"1", "3"}, {"2", "3"}})};
  EXPECT_EQ(judge_pool(ranks, alone).verdict, Verdict::pass);
  ranks[1].steps[1].samples = {"1", "3"};
  const auto each_in_one_iteration = [](ProgramRank rank) {
    for (ProgramStep& step : rank.steps) step.position = 1;
    return rank;
  };
  EXPECT_EQ(judge_pool(ranks, alone).verdict, Verdict::pass);  // one long iteration
  const Ranks apart = {each_in_one_iteration(ranks[0]), each_in_one_iteration(ranks[1])};
  const ProgramFinding found = judge_pool(apart, each_in_one_iteration(alone));
  EXPECT_EQ(found.cause, ProgramCause::other_shuffles);
  EXPECT_EQ(found.step, 2);
  EXPECT_NE(found.words.find("1 are dealt to several ranks and 1 to none"), std::string::npos);
}

TEST(ProgramPool, ADataSetIsTheSameOnAllRanksAndOnOneDevice) {
  Ranks ranks = {trained(0, {{"0"}}), trained(1, {{"1"}}), trained(2, {{"2"}})};
  ProgramRank alone = trained(0, {{"0", "1", "2"}});
  ranks[0].items = {{{0, 4}, "a"}};
  ranks[1].items = {{{0, 5}, "b"}, {{1, 4}, "c"}};
  ranks[2].items = {{{0, 5}, "b"}, {{0, 6}, "d"}};
  alone.items = {{{0, 4}, "a"}, {{0, 5}, "b"}};
  EXPECT_EQ(judge_items(ranks, alone).verdict, Verdict::pass);
  alone.items[{0, 4}] = "other";
  ProgramFinding found = judge_items(ranks, alone);
  EXPECT_EQ(found.cause, ProgramCause::other_items);
  EXPECT_NE(
      found.words.find("sample 4 of the data set is another one on rank 0 than on one device"),
      std::string::npos);
  ranks[2].items[{0, 5}] = "other";
  found = judge_items(ranks, alone);
  EXPECT_NE(found.words.find("sample 5 of the data set is another one on rank 2 than on rank 1"),
            std::string::npos);
}

TEST(ProgramPool, FirstWeightsThatAreThoseOfOneDeviceTimesANumberAreTold) {
  Ranks ranks = {trained(0, {{"0"}}), trained(1, {{"1"}})};
  EXPECT_EQ(judge_first_weights(ranks, kAlone).verdict, Verdict::pass);
  for (double& value : *ranks[0].steps[0].before[1]) value *= 1.5;
  const ProgramFinding found = judge_first_weights(ranks, kAlone);
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_NE(found.words.find("1.5 times its own values of bias"), std::string::npos);
  (*ranks[0].steps[0].before[0])[2] += 1;  // drawn anew
  EXPECT_EQ(judge_first_weights(ranks, kAlone).verdict, Verdict::pass);
}

// Rank 0 updates the weight, rank 1 the bias.
Ranks owners() {
  Ranks ranks = {trained(0, {{"0"}, {"1"}}), trained(1, {{"2"}, {"3"}})};
  for (size_t rank = 0; rank < 2; ++rank)
    for (ProgramStep& step : ranks[rank].steps) {
      step.grads[1 - rank] = {};
      step.param_hashes[rank] = "updated";
    }
  return ranks;
}

TEST(ProgramOwners, RanksThatSendWhatTheyUpdatedAreNotAccused) {
  EXPECT_NE(owners_of_parameters(owners()), "");
  EXPECT_EQ(judge_replicas(owners()).verdict, Verdict::inconclusive);
}

TEST(ProgramOwners, WhatIsNotSentOrHasNoOwnerIsNoOwnership) {
  Ranks ranks = owners();
  ranks[1].steps[1].before_hash = "its own";
  EXPECT_EQ(owners_of_parameters(ranks), "");
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail);
  ranks = owners();
  ranks[0].steps[1].grads[0] = {};
  EXPECT_EQ(owners_of_parameters(ranks), "");
  ranks = owners();
  for (ProgramRank& rank : ranks) rank.steps.pop_back();
  EXPECT_EQ(owners_of_parameters(ranks), "");
}

TEST(ProgramOrder, BatchesThatAreSkippedOfAnotherOrderAreTold) {
  ProgramRank rank = trained(0, {{"0"}, {"1"}, {"0"}, {"3"}});
  rank.steps[2].optimizer_loads = rank.steps[3].optimizer_loads = 1;
  const ProgramFinding found = judge_order({rank});
  EXPECT_EQ(found.cause, ProgramCause::loader_state_lost);
  EXPECT_EQ(found.step, 3);
  rank.steps[2].samples = {"2"};
  EXPECT_EQ(judge_order({rank}).verdict, Verdict::pass);
  rank = trained(0, {{"0"}, {"0"}, {"0"}, {"3"}});  // the data has it twice
  rank.steps[2].optimizer_loads = rank.steps[3].optimizer_loads = 1;
  EXPECT_EQ(judge_order({rank}).verdict, Verdict::pass);
}

}  // namespace
}  // namespace lockstep
