#include "sim/tools/program/deadlock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

#include "reducer/probe.h"
#include "sim/tools/program/group_waits.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

constexpr auto kAllReduce = static_cast<uint8_t>(Operation::all_reduce);
constexpr auto kBarrier = static_cast<uint8_t>(Operation::barrier);

ProgramRun silent_run(size_t ranks) {
  ProgramRun run;
  run.ranks.resize(ranks);
  run.outcome.ranks.resize(ranks);
  run.outcome.plan.scenario.world_size = static_cast<int64_t>(ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    run.outcome.ranks[rank].rank = static_cast<int64_t>(rank);
  return run;
}

void enter_call(ProgramRun* run, size_t rank, uint32_t sequence, bool ends,
                uint8_t operation = kAllReduce, uint64_t bytes = 0) {
  Event event{};
  event.sequence = sequence;
  event.subject = -1;
  event.value = uint64_t{operation} << 56 | bytes;
  event.kind = static_cast<uint16_t>(EventKind::arrival);
  run->outcome.ranks[rank].events.push_back(event);
  event.kind = static_cast<uint16_t>(EventKind::end);
  if (ends) run->outcome.ranks[rank].events.push_back(event);
}

ProgramRun all_in_the_second(size_t ranks) {
  ProgramRun run = silent_run(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    enter_call(&run, rank, 1, true);
    enter_call(&run, rank, 2, false);
  }
  return run;
}

TEST(Deadlock, WhereAllStandInTheSameCallItMayOnlyBeSlow) {
  EXPECT_FALSE(nobody_can_go_on(all_in_the_second(3), {0, 1, 2}));
}

TEST(Deadlock, OneThatIsAtWorkMayCome) {
  ProgramRun run = silent_run(3);
  for (size_t rank = 0; rank < 3; ++rank) enter_call(&run, rank, 1, true);
  enter_call(&run, 0, 2, false);
  enter_call(&run, 1, 2, false);
  EXPECT_FALSE(nobody_can_go_on(run, {0, 1, 2}));
  EXPECT_TRUE(nobody_can_go_on(run, {0, 1})) << "rank 2 has ended";
  enter_call(&run, 2, 2, false, kBarrier);
  EXPECT_TRUE(nobody_can_go_on(run, {0, 1, 2})) << "rank 2 called another";
}

// As where a rank leaves out a backward of fully_shard, and gathers another layer.
TEST(Deadlock, AGatherOfAnotherSizeIsAnotherCall) {
  constexpr auto kAllGather = static_cast<uint8_t>(Operation::all_gather);
  constexpr auto kBroadcast = static_cast<uint8_t>(Operation::broadcast);
  for (const auto& [operation, certain] :
       {std::pair{kAllGather, true}, std::pair{kBroadcast, false}}) {
    ProgramRun run = silent_run(3);
    for (size_t rank = 0; rank < 3; ++rank)
      enter_call(&run, rank, 1, false, operation, rank == 1 ? 68 : 452);
    EXPECT_EQ(nobody_can_go_on(run, {0, 1, 2}), certain) << "of a broadcast one side may give none";
  }
}

TEST(Deadlock, WhoWaitsInAnEarlierCallComesToNoLaterOne) {
  ProgramRun run = silent_run(3);
  enter_call(&run, 0, 1, true);
  enter_call(&run, 0, 2, false);
  enter_call(&run, 1, 1, true);
  enter_call(&run, 1, 2, false);
  enter_call(&run, 2, 1, false);
  EXPECT_TRUE(nobody_can_go_on(run, {0, 1, 2}));
}

TEST(Deadlock, AGroupOfSomeRanksCounts) {
  ProgramRun run = silent_run(3);
  for (const size_t rank : {0, 1}) run.ranks[rank].groups = {{"1", {0, 1}}};
  Event event{};
  event.kind = kGroupArrival;
  event.sequence = 1;
  run.outcome.ranks[0].events.push_back(event);
  enter_call(&run, 1, 1, false);
  EXPECT_FALSE(nobody_can_go_on(run, {0, 1, 2})) << "rank 2 is at work";
  enter_call(&run, 2, 1, false);
  EXPECT_TRUE(nobody_can_go_on(run, {0, 1, 2}));
  EXPECT_TRUE(waits_in_group(run, 0));
  EXPECT_FALSE(waits_in_group(run, 1));
}

TEST(Deadlock, TheStackTellsOfWhoStandsInTorch) {
  const TemporaryFolder folder;
  const auto stands = [&](const std::string& text) {
    folder.write("rank-0.stack", text.c_str());
    return stands_in_torch(folder.path(), 0);
  };
  const std::string head = "Stack (most recent call first):\n";
  const std::string torch =
      "  File \"/x/torch/distributed/distributed_c10d.py\", line 3 in barrier\n";
  const std::string agent = "  File \"/x/lockstep/agent/tap.py\", line 3 in waited\n";
  const std::string own = "  File \"/x/train.py\", line 3 in <module>\n";
  EXPECT_TRUE(stands(head + agent + torch + own));
  EXPECT_FALSE(stands(head + own));
  EXPECT_FALSE(stands(head + torch + own + head + own)) << "the last one counts";
  EXPECT_TRUE(stands(head + own + head + torch + own));
  EXPECT_FALSE(
      stands(head + "  File \"/x/torch/utils/data/dataloader.py\", line 3 in next\n" + own));
  EXPECT_FALSE(stands(""));
}

}  // namespace
}  // namespace lockstep
