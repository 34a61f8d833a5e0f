#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <set>

#include "sim/tools/explore/result.h"

namespace lockstep {
namespace {

TEST(ExploreResult, ComesBackFromItsJson) {
  ExploreResult result;
  result.explored = 12;
  result.decisions = 3.5;
  result.reference = "replay";
  ExploreFinding finding;
  finding.failure = {"deadlock", -1, 2, "nobody can go on"};
  finding.seed = 77;
  finding.smallest.parameters = {"0.weight"};
  finding.smallest.failure = {"deadlock", 1, 1, "nobody"};
  finding.smallest.acts = {{1, 2, "launches all_reduce"}};
  result.findings.push_back(finding);
  const auto written = as_json(result);
  EXPECT_EQ(as_json(explore_result_from_json(written)), written);
  EXPECT_TRUE(written["findings"][0]["rank"].is_null());
}

TEST(ExploreResult, SpecComesBackFromItsJson) {
  ExploreSpec spec;
  spec.preemptions = 0;
  spec.replay = 5;
  const auto written = as_json(spec);
  EXPECT_EQ(as_json(explore_spec_from_json(written)), written);
}

TEST(ExploreResult, SeedsOfSchedulesAreNumbersThatAnyReaderKeeps) {
  std::set<uint64_t> seen;
  for (int64_t i = 0; i < 10'000; ++i) {
    const uint64_t seed = schedule_seed(1, i);
    EXPECT_GT(seed, 0u);
    EXPECT_LT(seed, uint64_t{1} << 53);
    seen.insert(seed);
  }
  EXPECT_EQ(seen.size(), 10'000u);
}

}  // namespace

}  // namespace lockstep
