#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/tools/campaign/cases.h"
#include "tests/sanitized.h"
#include "tests/sim/tools/campaign/documents.h"

namespace lockstep {
namespace {

constexpr uint64_t kMutantSeeds = 2000;

TEST(MutantDraw, EveryCaseIsAScenarioAndTheSameForItsSeed) {
  for (uint64_t seed = 1; seed <= tries(kMutantSeeds); ++seed) {
    const auto document = mutant_case(seed);
    EXPECT_EQ(errors_of(document), "") << document.dump(2);
    EXPECT_EQ(mutant_case(seed), document);
  }
  EXPECT_NE(mutant_case(1), mutant_case(2));
}

TEST(MutantDraw, DrawsEveryKindOnManyTrainings) {
  std::map<std::string, int> kinds;
  std::set<std::string> reducers, communicators, optimizers, models;
  std::set<int64_t> worlds;
  for (uint64_t seed = 1; seed <= kMutantSeeds; ++seed) {
    const auto document = mutant_case(seed);
    ++kinds[document["mutants"][0]["kind"].get<std::string>()];
    reducers.insert(document["reducer"]["kind"].get<std::string>());
    communicators.insert(document["communicator"]["kind"].get<std::string>());
    optimizers.insert(document["optimizer"]["kind"].get<std::string>());
    models.insert(document["model"]["kind"].get<std::string>());
    worlds.insert(document["world_size"].get<int64_t>());
  }
  for (const std::string& kind : drawn_mutant_kinds()) EXPECT_GT(kinds[kind], 20) << kind;
  EXPECT_EQ(kinds.size(), drawn_mutant_kinds().size());
  EXPECT_EQ(reducers.size(), 6U);
  EXPECT_EQ(communicators.size(), 4U);
  EXPECT_EQ(optimizers.size(), 5U);
  EXPECT_EQ(models.size(), 6U);
  EXPECT_EQ(worlds, (std::set<int64_t>{2, 3, 4, 5, 6, 7}));
}

TEST(MutantDraw, ExpectsAFailureAtItsStep) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto document = mutant_case(seed);
    const auto& mutant = document["mutants"][0];
    const auto& expect = document["expect"];
    EXPECT_EQ(expect["verdict"], "fail");
    ASSERT_TRUE(expect.contains("step"));
    if (mutant.contains("step")) {
      EXPECT_EQ(expect["step"], mutant["step"]);
    }
    if (mutant.contains("tensor")) {
      EXPECT_EQ(expect["tensor"], mutant["tensor"]);
    }
    // Of two sums that change places either may be the first; reducer manual names no buckets.
    if (mutant.contains("bucket") && mutant["kind"] != "swap_launches" &&
        document["reducer"]["kind"] != "manual") {
      EXPECT_EQ(expect["bucket"], mutant["bucket"]);
    }
  }
}

TEST(MutantDraw, TheTwinDiffersInNothingButTheDefect) {
  const auto document = mutant_case(7);
  auto twin = clean_twin(document);
  EXPECT_EQ(errors_of(twin), "");
  EXPECT_FALSE(twin.contains("mutants"));
  EXPECT_EQ(twin["expect"]["verdict"], "pass");
  for (const auto& [key, value] : document.items())
    if (key != "mutants" && key != "expect" && key != "what") {
      EXPECT_EQ(twin[key], value) << key;
    }
}

}  // namespace

}  // namespace lockstep
