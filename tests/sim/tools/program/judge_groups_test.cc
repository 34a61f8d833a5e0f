#include "sim/tools/program/judge_groups.h"

#include <gtest/gtest.h>

#include "tests/sim/tools/program/judged_ranks.h"

namespace lockstep {
namespace {

using judged::Ranks;

// The first two have one gradient, and the others another.
Ranks two_nodes() {
  Ranks ranks;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(judged::made_rank(rank, 4));
    ranks.back().steps[0].grad_hashes = {rank < 2 ? "first" : "second", "g1"};
  }
  return ranks;
}

ProgramFinding failed(ProgramCause cause) {
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = cause;
  found.words = "they differ";
  return found;
}

TEST(ProgramGroups, OfRanksThatHaveGradientsInCommonAreNamed) {
  ProgramFinding found = failed(ProgramCause::not_reduced);
  take_groups(two_nodes(), 0, "weight", &found);
  EXPECT_EQ(found.cause, ProgramCause::some_ranks_summed);
  EXPECT_EQ(found.words,
            "they differ; ranks 0 and 1, and ranks 2 and 3 have summed among themselves alone");
}

TEST(ProgramGroups, OfTheSameSamplesHaveSummedNothing) {
  Ranks ranks = two_nodes();
  ranks[1].steps[0].samples = ranks[0].steps[0].samples;
  ProgramFinding found = failed(ProgramCause::not_reduced);
  take_groups(ranks, 0, "weight", &found);
  EXPECT_EQ(found.cause, ProgramCause::not_reduced);
}

TEST(ProgramGroups, AreNoneWhereOneRankAloneDiffers) {
  Ranks ranks = two_nodes();
  ranks[2].steps[0].grad_hashes[0] = "first";
  ProgramFinding found = failed(ProgramCause::unknown);
  take_groups(ranks, 0, "weight", &found);
  EXPECT_EQ(found.cause, ProgramCause::unknown);
}

TEST(ProgramGroups, AreNoBetterCauseThanOneThatIsKnown) {
  ProgramFinding found = failed(ProgramCause::scaled_apart);
  take_groups(two_nodes(), 0, "weight", &found);
  EXPECT_EQ(found.cause, ProgramCause::scaled_apart);
}

}  // namespace
}  // namespace lockstep
