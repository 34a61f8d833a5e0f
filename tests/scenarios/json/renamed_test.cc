#include "scenarios/json/renamed.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Renamed, WordsAreReplacedWhereTheyStandAndNowhereElse) {
  auto scenario = nlohmann::ordered_json::parse(
      R"({"name": "stand_in", "device": "stand_in", "faults": [{"kind": "other_seed", "rank": 1}]})");
  const auto replaced = replace_renamed_words(&scenario);
  ASSERT_EQ(replaced.size(), 2u);
  EXPECT_EQ(replaced[0].pointer, "/device");
  EXPECT_EQ(replaced[1].pointer, "/faults/0/kind");
  EXPECT_EQ(scenario["name"], "stand_in");
  EXPECT_EQ(scenario["device"], "fake");
  EXPECT_EQ(scenario["faults"][0]["kind"], "mismatched_seed");
}

TEST(Renamed, TheUpgradeNotesHaveEveryWord) {
  std::stringstream notes;
  notes << std::ifstream(LOCKSTEP_SOURCE_DIR "/docs/upgrading.md").rdbuf();
  ASSERT_FALSE(renamed_words().empty());
  for (const RenamedWord& word : renamed_words())
    EXPECT_THAT(notes.str(), HasSubstr("| `" + word.old_word + "` | `" + word.new_word + "` |"));
}

}  // namespace
}  // namespace lockstep
