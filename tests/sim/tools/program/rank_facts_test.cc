#include "sim/tools/program/rank_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RankFacts : public testing::Test {
 protected:
  // What is wrong with the files of rank 3; empty: nothing.
  std::string read() {
    found_ = {};
    error_ = {};
    const InputErrors errors = read_rank_facts(folder_.path(), 3, &found_, &error_);
    return errors.empty() ? "" : to_text(errors[0]);
  }
  std::string process_error(const std::string& text) const {
    folder_.write("rank-3.process.json", text);
    const auto read = read_rank_process(folder_.path(), 3);
    return read ? "" : to_text(read.errors()[0]);
  }
  Expected<ChildEnd> child_end(const std::string& text, pid_t pid = 7) const {
    folder_.write("children.jsonl", text);
    return read_child_end(folder_.path(), pid);
  }

  const TemporaryFolder folder_;
  ProgramRankFacts found_;
  RankError error_;
};

const std::string kFacts = R"({"torch": "2.15.0", "tap": "hooks", "world": 4, "timeout_ms": 9000})";
const std::string kGroups = R"([{"name": "1", "ranks": [0, 3]}])";
const std::string kError =
    R"({"type": "RuntimeError", "text": "Connection closed by peer\nand more", "line": "t.py:3", )"
    R"("phase": 5, "step": 2, "sequence": 8, "bucket": 1, "waited_ms": 40, "in_group": false})";

TEST_F(RankFacts, FilesThatAreNotThereSayNothing) {
  EXPECT_EQ(read(), "");
  EXPECT_FALSE(found_.met);
  EXPECT_EQ(error_.kind, ErrorKind::none);
  EXPECT_FALSE(read_rank_process(folder_.path(), 3).value());
  EXPECT_FALSE(read_child_end(folder_.path(), 7).value().ended);
}

TEST_F(RankFacts, AreWhatTheAgentWrites) {
  folder_.write("rank-3.facts.json", kFacts);
  folder_.write("rank-3.groups.json", kGroups);
  folder_.write("rank-3.error.json", kError);
  folder_.write("rank-3.stack",
                "Current thread:\n  File \"/x/lockstep/agent/a.py\", line 1 in watch\n"
                "  File \"/x/t.py\", line 3 in step\n");
  EXPECT_EQ(read(), "");
  EXPECT_TRUE(found_.met);
  EXPECT_EQ(found_.world, 4);
  EXPECT_THAT(found_.groups[0].ranks, ElementsAre(0, 3));
  EXPECT_EQ(found_.error, "RuntimeError: Connection closed by peer");
  EXPECT_THAT(found_.stack, ElementsAre("t.py:3 step()"));
  EXPECT_EQ(error_.kind, ErrorKind::peer_lost);
  EXPECT_EQ(error_.rank, 3);
  EXPECT_EQ(error_.deadline_ms, 9000);
}

TEST_F(RankFacts, OfAGroupMayTellMoreOrLess) {
  folder_.write("rank-3.groups.json",
                R"([{"name": "1", "ranks": [0, 3], "description": "row", "timeout_ms": 1800},)"
                R"( {"name": "2", "ranks": [3]}])");
  EXPECT_EQ(read(), "");
  ASSERT_EQ(found_.groups.size(), 2U);
  EXPECT_EQ(found_.groups[0].description, "row");
  EXPECT_EQ(found_.groups[0].timeout_ms, 1800);
  EXPECT_EQ(found_.groups[1].description, "");
  EXPECT_EQ(found_.groups[1].timeout_ms, -1);
}

TEST_F(RankFacts, OneThatIsBrokenIsToldWithItsPlace) {
  folder_.write("rank-3.facts.json", kFacts.substr(0, 20));
  EXPECT_THAT(read(), HasSubstr("rank-3.facts.json:1:"));
  EXPECT_FALSE(found_.met);
  folder_.write("rank-3.facts.json", R"({"torch": 2})");
  EXPECT_THAT(read(), HasSubstr("is no file of the agent: type must be string"));
  folder_.write("rank-3.facts.json", kFacts);
  for (const char* groups : {"{}", "7", "[7]", R"([{"name": "1", "ranks": [0.5]}])",
                             R"([{"name": "1", "ranks": [3], "description": 7}])",
                             R"([{"name": "1", "ranks": [3], "timeout_ms": "soon"}])"}) {
    folder_.write("rank-3.groups.json", groups);
    EXPECT_THAT(read(), HasSubstr("rank-3.groups.json: error: is no file of the agent: "));
  }
  folder_.write("rank-3.groups.json", kGroups);
  folder_.write("rank-3.error.json", R"({"type": "E"})");
  EXPECT_THAT(read(), HasSubstr("rank-3.error.json: error: is no file of the agent: key"));
}

TEST_F(RankFacts, AProcessIsAnOrdinaryOne) {
  EXPECT_EQ(process_error(R"({"pid": 4711})"), "");
  EXPECT_EQ(read_rank_process(folder_.path(), 3).value(), 4711);
  for (const char* pid : {"0", "1", "-7", "2147483648", "1e3", "1e99", "\"7\"", "null"})
    EXPECT_THAT(process_error(std::string(R"({"pid": )") + pid + "}"),
                HasSubstr("rank-3.process.json: error: is no file of the agent: "));
  EXPECT_THAT(process_error("{\"pid\""), HasSubstr("rank-3.process.json:1:7: error: "));
}

TEST_F(RankFacts, AChildEndsAsItsParentTold) {
  const auto found = child_end(
      "{\"pid\": 8, \"signal\": 0, \"exit_code\": 3, \"sent\": 0}\n"
      "{\"pid\": 7, \"signal\": 0, \"exit_code\": 0, \"sent\": 15}\n"
      "{\"pid\": 7, \"signal\": 15, \"exit_code\": -1, \"sent\": 0}\n"
      "{\"pid\": 7, \"signal\": 9");
  ASSERT_TRUE(found) << to_text(found.errors()[0]);
  EXPECT_TRUE(found.value().ended);
  EXPECT_EQ(found.value().signal, 15);
  EXPECT_EQ(found.value().sent, 15);
}

TEST_F(RankFacts, LinesOfChildrenAreChecked) {
  const std::string good = "{\"pid\": 7, \"signal\": 9, \"exit_code\": -1, \"sent\": 0}\n";
  for (const char* line :
       {"no JSON", "{\"pid\": 7}", R"({"pid": 8, "signal": 4711, "exit_code": 0, "sent": 0})",
        R"({"pid": 8, "signal": 0, "exit_code": 256, "sent": 0})",
        R"({"pid": 8, "signal": 0, "exit_code": 0, "sent": -1})"}) {
    const auto found = child_end(good + line + "\n");
    ASSERT_FALSE(found) << line;
    EXPECT_THAT(to_text(found.errors()[0]), HasSubstr("children.jsonl:2:")) << line;
  }
}

}  // namespace
}  // namespace lockstep
