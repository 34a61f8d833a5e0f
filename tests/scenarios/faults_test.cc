#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "scenarios/faults.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const std::string kSchema = LOCKSTEP_SOURCE_DIR "/scenarios/schema.json";
const std::string kDocs = LOCKSTEP_SOURCE_DIR "/docs/faults.md";

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The definition as it stands in the file, a branch in a line.
std::string shipped_text(const Json& fault) {
  std::string text = "    \"fault\": {\n";
  for (const auto& [key, value] : fault.items()) {
    if (key == "allOf") continue;
    text += "      \"" + key + "\": " + value.dump() + ",\n";
  }
  text += "      \"allOf\": [\n";
  for (size_t i = 0; i < fault["allOf"].size(); ++i)
    text += "        " + fault["allOf"][i].dump() +
            (i + 1 < fault["allOf"].size() ? ",\n" : "\n      ]\n    }");
  return text;
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
  const Json definitions = Json::parse(text_of(kSchema))["definitions"];
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

TEST(FaultKinds, AreInTheSchemaAsTheirRowsSay) {
  std::string schema = text_of(kSchema);
  const std::string wanted = shipped_text(fault_schema());
  const size_t begin = schema.find("    \"fault\": {");
  const size_t end =
      schema.find(schema.compare(begin, 15, "    \"fault\": {}") == 0 ? "}" : "\n    }", begin);
  ASSERT_NE(end, std::string::npos);
  const size_t length = schema.find('}', end) + 1 - begin;
  if (std::getenv("LOCKSTEP_WRITE_DOCS") != nullptr) {
    std::ofstream(kSchema) << schema.replace(begin, length, wanted);
    return;
  }
  EXPECT_EQ(schema.substr(begin, length), wanted) << "LOCKSTEP_WRITE_DOCS=1 writes it";
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
