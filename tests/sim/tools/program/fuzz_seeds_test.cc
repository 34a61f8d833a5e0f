// Seeds of the fuzzers are what the agent leaves today: one that its newest fact is missing from
// would have a refusal fuzzed, and nothing behind it.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "sim/tools/program/collectives.h"
#include "sim/tools/program/drill_recording.h"
#include "sim/tools/program/recording.h"
#include "sim/tools/program/sweep_times.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

std::string seed(const std::string& name) {
  return LOCKSTEP_SOURCE_DIR "/tests/fuzz/corpus/" + name;
}

template <class T>
std::string refusal(const Expected<T>& read) {
  return read ? "" : to_text(read.errors()[0]);
}

TEST(ProgramSeeds, OfARanksStepsAreRead) {
  const auto rank = read_program_rank(seed("program/two_steps"));
  ASSERT_EQ(refusal(rank), "");
  EXPECT_TRUE(rank.value().ended);
  EXPECT_EQ(rank.value().steps.size(), 2U);
}

TEST(ProgramSeeds, OfAStepOperatorByOperatorAreRead) {
  EXPECT_EQ(refusal(read_drill_rank(seed("drill/two_calls"))), "");
  const std::string of_no_call = refusal(read_drill_rank(seed("drill/no_such_call")));
  EXPECT_EQ(of_no_call.find("key"), std::string::npos) << of_no_call;
}

TEST(ProgramSeeds, OfCollectivesAreRead) {
  const TemporaryFolder folder;
  std::filesystem::copy(seed("collectives/sums"), folder.path() + "/collectives-0.jsonl");
  EXPECT_EQ(refusal(read_tapped_rank(folder.path(), 0)), "");
}

TEST(ProgramSeeds, OfStepTimesAreRead) {
  for (const char* name : {"four_ends", "traced"})
    EXPECT_EQ(refusal(read_program_times(seed(std::string("times/") + name))), "") << name;
}

}  // namespace
}  // namespace lockstep
