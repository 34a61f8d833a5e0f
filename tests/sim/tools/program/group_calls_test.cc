#include "sim/tools/program/group_calls.h"

#include <gmock/gmock.h>

#include "sim/tools/program/run_blame.h"
#include "tests/sim/analysis/made_mesh.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

void change(ProgramRun* run, size_t rank, uint32_t call, uint64_t value) {
  for (Event& event : run->outcome.ranks[rank].events)
    if (event.kind == kGroupArrival && event.subject == 0 && event.sequence == call)
      event.value = value;
}

TEST(GroupCalls, WhoCallsSomethingElseStandsOnASideOfItsOwn) {
  ProgramRun run;
  run.outcome = made_mesh(4);
  EXPECT_FALSE(first_group_mismatch(run, is_other_call));
  change(&run, 3, 3, pack_collective(1, 6, 12'000));
  change(&run, 3, 2, pack_collective(1, 7, 16'000));
  const auto found = first_group_mismatch(run, is_other_call);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->members, ElementsAre(2, 3));
  ASSERT_EQ(found->sides.size(), 2U);
  EXPECT_EQ(found->sides[0].call.sequence, 2U);
  EXPECT_THAT(found->sides[0].ranks, ElementsAre(2));
  EXPECT_THAT(found->sides[1].ranks, ElementsAre(3));
}

// Of a broadcast the source alone may have given something.
TEST(GroupCalls, SizesOfABroadcastMayDiffer) {
  ProgramRun run;
  run.outcome = made_mesh();
  change(&run, 2, 1, pack_collective(2, 6, 0));
  change(&run, 3, 1, pack_collective(2, 6, 16'000));
  EXPECT_FALSE(first_group_mismatch(run, is_other_call));
}

}  // namespace
}  // namespace lockstep
