#include "sim/report/earlier_result.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/report/document.h"
#include "sim/report/terminal.h"
#include "tests/sim/report/ci/made_report.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

class Earlier : public testing::Test {
 protected:
  ~Earlier() override { std::filesystem::remove(path_); }
  EarlierResult earlier(std::vector<RunResult> runs) {
    ResultDocument document;
    document.runs = std::move(runs);
    std::ofstream(path_) << to_text(document);
    return EarlierResult::load(path_).value();
  }
  const std::string path_ = testing::TempDir() + "lockstep_earlier_" + std::to_string(getpid());
};

TEST_F(Earlier, EveryPairOfThenAndNowHasItsWord) {
  const EarlierResult before =
      earlier({made_run("a", "x=1"), made_failure("a", "x=2"), made_breakdown("a", "x=3")});
  EXPECT_EQ(before.beside(made_run("a", "x=1")), "same");
  EXPECT_EQ(before.beside(made_failure("a", "x=1")), "regression");
  EXPECT_EQ(before.beside(made_breakdown("a", "x=1")), "regression");
  EXPECT_EQ(before.beside(made_run("a", "x=2")), "fixed");
  EXPECT_EQ(before.beside(made_failure("a", "x=2")), "known");
  EXPECT_EQ(before.beside(made_breakdown("a", "x=2")), "changed");
  EXPECT_EQ(before.beside(made_breakdown("a", "x=3")), "known");
  EXPECT_EQ(before.beside(made_failure("a", "x=3")), "changed");
  EXPECT_EQ(before.beside(made_failure("a", "x=4")), "absent");
  EXPECT_EQ(before.beside(made_failure("b", "x=2")), "absent");
}

TEST_F(Earlier, OfTwoAlikeThePassedOneCounts) {
  const EarlierResult before = earlier({made_failure("a", ""), made_run("a", "")});
  EXPECT_EQ(before.beside(made_failure("a", "")), "regression");
}

TEST_F(Earlier, WhatIsKnownDoesNotFailTheInvocation) {
  ResultDocument document;
  document.runs = {made_run("a", "x=1"), made_failure("a", "x=2")};
  EXPECT_EQ(overall_verdict(document.runs), "fail");
  document.runs[1].baseline = "known";
  EXPECT_EQ(overall_verdict(document.runs), "pass");
  document.verdict = "pass";
  EXPECT_EQ(answer_line(document), "pass: 1 of 2 runs as expected, 1 known to the baseline\n");
  const std::string text = terminal_text(document, {});
  EXPECT_THAT(text, HasSubstr("known  a  x=2  not as expected in the baseline either\n"));
  EXPECT_THAT(text, Not(HasSubstr("again")));
  document.runs[1].baseline = "regression";
  EXPECT_EQ(overall_verdict(document.runs), "fail");
  EXPECT_THAT(failure_text(document.runs[1], Style(false)), HasSubstr("regression"));
}

TEST_F(Earlier, OtherFilesAreBadInput) {
  EXPECT_FALSE(EarlierResult::load("/no/such.json"));
  for (const char* text : {"", "[]", "{}", "{\"runs\": [1]}", "{\"runs\": [{\"name\": \"a\"}]}"}) {
    std::ofstream(path_) << text;
    const auto loaded = EarlierResult::load(path_);
    ASSERT_FALSE(loaded) << text;
    EXPECT_THAT(loaded.errors()[0].message, HasSubstr("--baseline " + path_));
  }
}

}  // namespace
}  // namespace lockstep
