#include "sim/explore/scheduler.h"

#include <gmock/gmock.h>

#include <set>

namespace lockstep {
namespace {

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
