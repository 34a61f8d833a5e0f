#include "sim/explore/chooser.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

namespace lockstep {
namespace {

const std::vector<Actor> kThree = {0, 1, 2};

Choice of_three(bool preempts = true) { return {.count = 3, .preempts = preempts}; }

TEST(Chooser, ScriptTakesTheUsualWayButWhereItSaysOtherwise) {
  ScriptedChooser chooser({{1, 2}, {3, 9}});
  std::vector<size_t> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(chooser.choose(kThree, {.count = 3, .usual = 1}));
  EXPECT_THAT(taken, testing::ElementsAre(1, 2, 1, 1, 1));  // there is no alternative 9
}

TEST(Chooser, ScriptOfChoicesGivesThemAgain) {
  const std::vector<Choice> choices = {{3, 0, 0, true}, {2, 1, 0, true}, {3, 0, 2, false}};
  EXPECT_EQ(script_of(choices), (Script{{1, 0}, {2, 2}}));
  EXPECT_EQ(preemptions_of(choices), 1);
}

TEST(Chooser, SameSeedSameDecisionsAndEverySeedItsOwn) {
  SeededChooser chooser(6, 40, std::nullopt);
  std::set<std::vector<size_t>> seen;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<size_t> taken[2];
    for (auto& one : taken) {
      chooser.begin(seed);
      for (int i = 0; i < 40; ++i) one.push_back(chooser.choose(kThree, of_three()));
    }
    EXPECT_EQ(taken[0], taken[1]);
    seen.insert(taken[0]);
  }
  EXPECT_GT(seen.size(), 25u);  // uniform ones differ; priorities of three actors have 6 orders
}

TEST(Chooser, PrioritiesChangeOnlyAtPreemptionPoints) {
  SeededChooser chooser(3, 30, 2);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    chooser.begin(seed);
    int changes = -1;
    size_t last = 99;
    for (int i = 0; i < 30; ++i) {
      const size_t taken = chooser.choose(kThree, of_three());
      changes += taken != last;
      last = taken;
    }
    EXPECT_LE(changes, 2);
  }
}

TEST(Chooser, UniformDrawsEveryAlternativeEquallyOften) {
  SeededChooser chooser(3, 1, std::nullopt);
  std::map<size_t, int> counts;
  int draws = 0;
  for (uint64_t seed = 1; draws < 30'000; ++seed) {
    chooser.begin(seed);
    std::vector<size_t> taken;
    for (int i = 0; i < 30; ++i) taken.push_back(chooser.choose({}, of_three()));
    for (size_t one : taken) ++counts[one];
    draws += 30;
  }
  for (const auto& [taken, count] : counts) EXPECT_NEAR(count, 10'000, 400) << taken;
}

// A tree of three decisions, the second of which is only there after some first ones.
std::vector<std::vector<size_t>> all_of(int64_t preemptions) {
  ExhaustiveChooser chooser(preemptions);
  std::vector<std::vector<size_t>> all;
  do {
    std::vector<size_t> taken;
    taken.push_back(chooser.choose(kThree, {.count = 3, .usual = 1, .preempts = true}));
    if (taken[0] != 0) taken.push_back(chooser.choose(kThree, {.count = 2, .preempts = false}));
    taken.push_back(chooser.choose(kThree, {.count = 2, .usual = 1, .preempts = true}));
    all.push_back(taken);
  } while (chooser.advance());
  return all;
}

TEST(Chooser, ExhaustiveVisitsEveryScheduleOnceTheUsualOneFirst) {
  const auto all = all_of(2);
  EXPECT_EQ(all.size(), 2u + 4u + 4u);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  EXPECT_THAT(all.front(), testing::ElementsAre(1, 0, 1));
}

TEST(Chooser, ExhaustiveKeepsItsBoundOfPreemptions) {
  EXPECT_THAT(all_of(0), testing::UnorderedElementsAre(testing::ElementsAre(1, 0, 1),
                                                       testing::ElementsAre(1, 1, 1)));
  EXPECT_EQ(all_of(1).size(), 2u + 2u + 1u + 2u);
  for (const auto& taken : all_of(1)) EXPECT_LE((taken.front() != 1) + (taken.back() != 1), 1);
}

}  // namespace
}  // namespace lockstep
