#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "scenarios/faults.h"
#include "scenarios/scenario_schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const std::string kDocs = LOCKSTEP_SOURCE_DIR "/docs/faults.md";

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(FaultKinds, AreEachAtTheirPlaceUnderTheirWord) {
  std::set<std::string> words;
  for (const FaultRow& row : fault_rows()) {
    EXPECT_TRUE(words.insert(row.word).second) << row.word;
    EXPECT_EQ(fault_kind_from(row.word), row.kind);
    EXPECT_STREQ(to_word(row.kind), row.word);
  }
  EXPECT_EQ(fault_kind_from("slowly"), std::nullopt);
  EXPECT_EQ(fault_kind_from(""), std::nullopt);
}

TEST(FaultKinds, KeysAreDefinedAndCarryWhatTheRowSays) {
  const Json& definitions = scenario_schema().document()["definitions"];
  for (const FaultRow& row : fault_rows()) {
    std::set<std::string> keys;
    for (const FaultKey& key : row.keys) {
      EXPECT_TRUE(definitions.contains(key.definition)) << key.definition;
      EXPECT_TRUE(keys.insert(key.key).second) << row.word << " has " << key.key << " twice";
    }
    const bool placed = keys.contains("phase") || keys.contains("step");
    EXPECT_FALSE(row.phase == Phase::rendezvous && placed) << row.word << " is before all steps";
    EXPECT_EQ(row.acts == FaultActs::once, keys.contains("bucket") && keys.contains("phase"))
        << row.word << ": what acts at a moment may be given one";
  }
}

TEST(FaultKinds, AreInTheTableOfTheDocs) {
  const std::string docs = text_of(kDocs);
  for (const FaultRow& row : fault_rows()) {
    const size_t table = docs.find(std::string("\n| ") + to_word(row.of) + " |");
    ASSERT_NE(table, std::string::npos) << to_word(row.of);
    const size_t next = docs.find("\n\n", table);
    EXPECT_LT(docs.find(std::string("`") + row.word + "`", table), next) << row.word;
  }
}

}  // namespace

}  // namespace lockstep
