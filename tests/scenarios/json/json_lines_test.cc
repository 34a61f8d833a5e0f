#include "scenarios/json/json_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

class JsonLines : public testing::Test {
 protected:
  // The error, behind the folder; every line is a whole number of at least 0.
  std::string error_of(const std::string& text, const JsonLineLimits& limits = {1000, 5, 50}) {
    taken_.clear();
    const std::string path = folder_.write("a.jsonl", text);
    const InputErrors errors = read_json_lines(path, "line of the test", limits, take());
    return errors.empty() ? "" : to_text(errors[0]).substr(path.size() - 7);
  }
  std::string facts_error_of(const std::string& text) {
    taken_.clear();
    const std::string path = folder_.write("a.jsonl", text);
    const InputErrors errors = read_json_facts(path, "file of the test", 1000, take());
    return errors.empty() ? "" : to_text(errors[0]).substr(path.size() - 7);
  }
  TakeJson take() {
    return [this](const Json& line) {
      taken_.push_back(whole_number(line));
      return taken_.back() < 0 ? "it is negative" : "";
    };
  }

  const TemporaryFolder folder_;
  std::vector<int64_t> taken_;
};

using Taken = std::vector<int64_t>;

TEST_F(JsonLines, AreTakenInOrder) {
  EXPECT_EQ(error_of("3\n 1 \r\n2\n"), "");
  EXPECT_EQ(taken_, (Taken{3, 1, 2}));
  EXPECT_EQ(error_of(""), "");
  EXPECT_TRUE(taken_.empty());
}

TEST_F(JsonLines, ALastLineWithoutItsEndIsLeftOutWhateverItHolds) {
  for (const std::string& cut : {std::string("2"), std::string("{\"a"), std::string("-1"),
                                 std::string("\0", 1), std::string(900, '7')}) {
    EXPECT_EQ(error_of("3\n" + cut), "") << cut;
    EXPECT_EQ(taken_, Taken{3});
  }
}

TEST_F(JsonLines, ABrokenOneEndsTheReadingWithItsPlaceAndReason) {
  EXPECT_EQ(error_of("3\n[1,\n4\n"),
            "a.jsonl:2:4: error: is no line of the test: the file ends here; expected a value");
  EXPECT_EQ(taken_, Taken{3}) << "nothing after it";
  EXPECT_EQ(error_of("3\n4\n-1\n"), "a.jsonl:3: error: is no line of the test: it is negative");
  EXPECT_EQ(error_of("\"3\"\n"),
            "a.jsonl:1: error: is no line of the test: a whole number is expected");
  EXPECT_EQ(error_of("1\n\n2\n"), "a.jsonl:2: error: is no line of the test: it is empty");
  EXPECT_EQ(error_of(" \n"),
            "a.jsonl:1:2: error: is no line of the test: there is no value; expected an object");
}

TEST_F(JsonLines, OfOtherBytesAreBroken) {
  EXPECT_EQ(error_of(std::string("1\n\0\1\n", 5)),
            "a.jsonl:2:1: error: is no line of the test: unexpected byte 0x00; expected a value");
  EXPECT_EQ(error_of("\"\xff\"\n"),
            "a.jsonl:1:2: error: is no line of the test: unexpected byte 0xff; expected text in "
            "UTF-8");
}

TEST_F(JsonLines, NumbersThatNothingHoldsAreBroken) {
  EXPECT_NE(error_of("1e999\n").find("the number 1e999 cannot be represented"), std::string::npos);
  for (const char* number : {"9223372036854775808", "18446744073709551616", "1.0", "1e3"})
    EXPECT_NE(error_of(number + std::string("\n")).find("a whole number"), std::string::npos);
  EXPECT_EQ(error_of("9223372036854775807\n"), "");
}

TEST_F(JsonLines, AreBounded) {
  const std::string longest(50, ' ');
  EXPECT_EQ(error_of(longest.substr(1) + "1\n"), "");
  EXPECT_EQ(error_of("1\n" + longest + "1\n"),
            "a.jsonl:2: error: is no line of the test: it is too long");
  EXPECT_EQ(error_of("1\n2\n3\n4\n5\n"), "");
  EXPECT_EQ(error_of("1\n2\n3\n4\n5\n6\n"),
            "a.jsonl:6: error: is no line of the test: there are more than 5");
  EXPECT_EQ(error_of(std::string(1001, '1')),
            "a.jsonl: error: the file is too large; expected at most 1000 bytes");
}

TEST_F(JsonLines, DeepAndDoubleOnesAreBroken) {
  const std::string deep(200, '[');
  EXPECT_NE(error_of("1\n" + deep + "\n", {1000, 5, 500}).find("a.jsonl:2:101: error: "),
            std::string::npos);
  EXPECT_NE(error_of("{\"a\": 1, \"a\": 2}\n").find("duplicate key"), std::string::npos);
}

TEST_F(JsonLines, AFileThatIsNotThereIsAnError) {
  const std::string none = folder_.path() + "/none";
  EXPECT_EQ(to_text(read_json_lines(none, "line", {1000}, take())[0]),
            none + ": error: cannot be opened: No such file or directory");
  EXPECT_FALSE(read_json_lines(folder_.path(), "line", {1000}, take()).empty());
}

TEST_F(JsonLines, FactsAreOneDocument) {
  EXPECT_EQ(facts_error_of("\n7\n"), "");
  EXPECT_EQ(taken_, Taken{7});
  EXPECT_EQ(facts_error_of("-7"), "a.jsonl: error: is no file of the test: it is negative");
  EXPECT_EQ(facts_error_of("7\n8\n"),
            "a.jsonl:2:1: error: is no file of the test: unexpected 8 after the end; expected "
            "nothing");
  EXPECT_NE(facts_error_of(""), "");
}

}  // namespace
}  // namespace lockstep
