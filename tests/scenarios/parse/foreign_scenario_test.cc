#include <gmock/gmock.h>

#include "scenarios/parse/suite.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

TEST(ForeignScenario, TextThatWouldSteerATerminalOrACiSystemIsRefusedWhereItStands) {
  const TemporaryFolder folder;
  const auto error = [&](std::string_view name) {
    const auto file = load_scenario_file(folder.write("a.json", changed("\"small\"", name)), {});
    return file ? "" : to_text(file.errors().front());
  };
  for (const char* name :
       {R"("a\n::error::b")", R"("a\u001b[2J")", R"("a\u202eb")", R"("a\u009bb")"})
    EXPECT_THAT(error(name), testing::AllOf(testing::HasSubstr("a.json:2:11: error: "),
                                            testing::HasSubstr("holds a control character")));
  EXPECT_EQ(error(R"("größer")"), "");
}

TEST(ForeignScenario, ManyUnknownKeysAreReportedInLinearTimeAndNotAll) {
  std::string keys;
  for (int i = 0; i < 20'000; ++i) keys += "\"k" + std::to_string(i) + "\": 1, ";
  const TemporaryFolder folder;
  const auto file =
      load_scenario_file(folder.write("a.json", changed("\"name\"", keys + "\"name\"")), {});
  ASSERT_FALSE(file);
  EXPECT_LE(file.errors().size(), 20u);
}

// Every combination of a matrix is a copy of the document.
TEST(ForeignScenario, AMatrixOfALargeDocumentIsRefusedBeforeItIsExpanded) {
  std::string keys, seeds = "1";
  for (int i = 0; i < 100'000; ++i) keys += "\"k" + std::to_string(i) + "\": 1, ";
  for (int i = 2; i <= 1000; ++i) seeds += ", " + std::to_string(i);
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    const auto file = load_scenario_file(folder.write("a.json", changed("\"name\"", text)), {});
    return file ? "" : to_text(file.errors().front());
  };
  const std::string matrix = R"("matrix": {"/seed": [)" + seeds + "]}, \"name\"";
  EXPECT_THAT(error(keys + matrix),
              testing::HasSubstr("the matrix has 1000 combinations of a scenario of 10"));
}

TEST(ForeignScenario, WhatIsWrongInEveryCombinationIsFoundOnce) {
  std::string keys, seeds = "1";
  for (int i = 0; i < 18'000; ++i) keys += "\"k" + std::to_string(i) + "\": 1, ";
  for (int i = 2; i <= 1000; ++i) seeds += ", " + std::to_string(i);
  const TemporaryFolder folder;
  const std::string text = R"("matrix": {"/seed": [)" + seeds + "]}, " + keys + "\"name\"";
  const auto file = load_scenario_file(folder.write("a.json", changed("\"name\"", text)), {});
  ASSERT_FALSE(file);
  EXPECT_LE(file.errors().size(), 20u);
}

}  // namespace
}  // namespace lockstep
