#include <gmock/gmock.h>

#include <map>
#include <set>

#include "sim/tools/explore/scheduler.h"

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

// Ranks that wait for deliveries: a rank asks for one, and has it when it is delivered.
class Mail : public Deliveries {
 public:
  explicit Mail(size_t ranks) : asked(ranks, false) {}
  bool can_deliver(int64_t rank) const override { return asked[static_cast<size_t>(rank)]; }
  void deliver(int64_t rank) override {
    asked[static_cast<size_t>(rank)] = false;
    *box[rank] = true;
  }
  std::string next_delivery(int64_t) const override { return "a letter"; }
  std::vector<bool> asked;
  bool* box[8] = {};
};

const auto kSay = [](const char* text) { return [text] { return std::string(text); }; };

TEST(Scheduler, OneRankRunsAtATimeAndTheUsualScheduleIsRankByRank) {
  Scheduler scheduler(3, -1);
  Mail mail(3);
  std::vector<int64_t> order;
  for (int again = 0; again < 2; ++again) {
    ScriptedChooser usual({});
    order.clear();
    const auto failure = scheduler.run(
        usual, mail,
        [&](int64_t rank) {
          for (int i = 0; i < 3; ++i) {
            scheduler.point(rank, kSay("works"));
            order.push_back(rank);
          }
        },
        true);
    EXPECT_FALSE(failure);
    EXPECT_THAT(order, testing::ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
    EXPECT_EQ(scheduler.points(), 9);
    EXPECT_EQ(scheduler.acts().size(), 12u);  // and the end of each
  }
}

// All orders of two ranks with `points` points each: the order in which they get past them.
std::set<std::vector<int64_t>> orders(int points, int64_t preemptions) {
  Scheduler scheduler(2, -1);
  Mail mail(2);
  ExhaustiveChooser chooser(preemptions);
  std::set<std::vector<int64_t>> seen;
  do {
    std::vector<int64_t> order;
    scheduler.run(
        chooser, mail,
        [&](int64_t rank) {
          for (int i = 0; i < points; ++i) {
            scheduler.point(rank, kSay(""));
            order.push_back(rank);
          }
        },
        false);
    seen.insert(order);
  } while (chooser.advance());
  return seen;
}

TEST(Scheduler, ExhaustiveSeesAllOrders) {
  EXPECT_EQ(orders(1, 9).size(), 2u);   // 2! / (1! 1!)
  EXPECT_EQ(orders(3, 9).size(), 20u);  // 6! / (3! 3!)
  EXPECT_LT(orders(3, 1).size(), 20u);
}

TEST(Scheduler, ARankThatWaitsIsLetGoByADeliveryOnly) {
  Scheduler scheduler(2, -1);
  Mail mail(2);
  for (uint64_t seed = 1; seed < 100; ++seed) {
    SeededChooser chooser(4, 10, std::nullopt);
    chooser.begin(seed);
    const auto failure = scheduler.run(
        chooser, mail,
        [&](int64_t rank) {
          bool arrived = false;
          mail.box[rank] = &arrived;
          mail.asked[static_cast<size_t>(rank)] = true;
          scheduler.point(rank, kSay("asks"));
          scheduler.block(rank, arrived, "a letter");
          EXPECT_TRUE(arrived);
        },
        false);
    EXPECT_FALSE(failure) << failure->what;
  }
}

TEST(Scheduler, NobodyCanGoOn) {
  Scheduler scheduler(3, -1);
  Mail mail(3);
  ScriptedChooser usual({});
  const auto failure = scheduler.run(
      usual, mail,
      [&](int64_t rank) {
        scheduler.set_step(rank, 4);
        const bool never = false;
        if (rank != 1) scheduler.block(rank, never, "all_reduce 7");
      },
      false);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "deadlock");
  EXPECT_EQ(failure->what,
            "nobody can go on: rank 0 waits for all_reduce 7 in step 4, rank 1 has ended, rank 2 "
            "waits for all_reduce 7 in step 4");
}

TEST(Scheduler, TheFirstFailureEndsTheScheduleForAllRanks) {
  Scheduler scheduler(3, -1);
  Mail mail(3);
  ScriptedChooser usual({});
  int beyond = 0;
  const auto failure = scheduler.run(
      usual, mail,
      [&](int64_t rank) {
        scheduler.point(rank, kSay(""));
        if (rank == 1) throw std::runtime_error("no luck\nfrom here");
        scheduler.point(rank, kSay(""));
        ++beyond;
      },
      false);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "error");
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->what, "no luck");
  EXPECT_EQ(beyond, 1);  // rank 0 was done; rank 2 did not get there
}

TEST(Scheduler, PicksAreDecisionsToo) {
  Scheduler scheduler(1, -1);
  Mail mail(1);
  ExhaustiveChooser chooser(0);
  std::set<size_t> picked;
  do {
    scheduler.run(
        chooser, mail, [&](int64_t) { picked.insert(scheduler.pick(3)); }, false);
  } while (chooser.advance());
  EXPECT_THAT(picked, testing::ElementsAre(0, 1, 2));
}

// The same choices give the same acts.
TEST(Scheduler, AScriptReplaysWhatASeedDid) {
  Scheduler scheduler(3, -1);
  Mail mail(3);
  const auto body = [&](int64_t rank) {
    for (int i = 0; i < 5; ++i) scheduler.point(rank, [i] { return "act " + std::to_string(i); });
  };
  const auto text = [&] {
    std::string all;
    for (const ScheduledAct& act : scheduler.acts())
      all += std::to_string(act.rank) + act.operation + ";";
    return all;
  };
  for (uint64_t seed = 1; seed < 30; ++seed) {
    SeededChooser chooser(6, 10, std::nullopt);
    chooser.begin(seed);
    scheduler.run(chooser, mail, body, true);
    const std::string drawn = text();
    ScriptedChooser script(script_of(scheduler.choices()));
    scheduler.run(script, mail, body, true);
    EXPECT_EQ(text(), drawn);
  }
}

}  // namespace

}  // namespace lockstep
