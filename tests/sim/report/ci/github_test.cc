#include "sim/report/ci/github.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/sim/report/ci/made_report.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Annotations, AreErrorsAndWarningsAtTheirPlace) {
  TestReport report = test_report("verify", made_document());
  for (TestCase& one : report.cases) one.line = 7;
  const std::string text = github_annotations(report, "/home/ci/space", "/home/ci/space/sub");
  EXPECT_THAT(text, HasSubstr("::error file=sub/scenarios/mlp.json,line=7,title=fail%3A mlp "
                              "world_size=3::step 2, gradient of fc2.weight, bucket 1"));
  EXPECT_THAT(text, HasSubstr("%0Aagain: lockstep verify scenarios/mlp.json --set"));
  EXPECT_THAT(text, HasSubstr("::warning file=sub/scenarios/toy.json,line=7,title=inconclusive"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);  // neither the known nor the skipped
  // Elsewhere than below the workspace files are named as they were.
  EXPECT_THAT(github_annotations(report, "/other", "/home"), HasSubstr("file=scenarios/mlp.json"));
}

TEST(Annotations, AreTenAndACount) {
  ResultDocument document;
  document.runs.assign(13, made_failure("mlp", "world_size=3"));
  const std::string text = github_annotations(test_report("verify", document), "", "/");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_THAT(text, HasSubstr("::notice title=lockstep verify::and 3 more, of 13"));
}

TEST(Annotations, NothingCanEndThemEarly) {
  EXPECT_EQ(command_data("50 %\r\n::error::x"), "50 %25%0D%0A::error::x");
  EXPECT_EQ(command_property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
  ResultDocument document;
  document.runs = {made_failure(kHostile, kHostile)};
  document.runs[0].file = kHostile;
  const std::string text = github_annotations(test_report("verify", document), "", "/");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_THAT(text, StartsWith("::error file=a<b>&\"'"));
}

TEST(Annotations, OfBadInputAreErrors) {
  const auto report = test_report(InputErrors{{"a.json", 7, 3, "", "unknown key", ""}});
  EXPECT_EQ(github_annotations(report, "", "/"),
            "::error file=a.json,line=7,col=3,title=bad input::unknown key\n");
}

TEST(Summary, IsATableOfScenariosAndWhatFailed) {
  const std::string text = github_summary(test_report("verify", made_document()));
  EXPECT_THAT(text, StartsWith("### lockstep verify\n\n| scenario | verdict |"));
  EXPECT_THAT(text, HasSubstr("| mlp | **fail** | 3 | 1 | 1 | 0 | 1 | 1.3 |\n"));
  EXPECT_THAT(text, HasSubstr("| toy | **inconclusive** | 3 | 1 | 0 | 1 | 1 | 0.8 |\n"));
  EXPECT_THAT(text, HasSubstr("* **fail: mlp world_size=3**: step 2, gradient"));
  EXPECT_THAT(text, HasSubstr("\n      lockstep verify scenarios/mlp.json --set"));
  EXPECT_THAT(text, HasSubstr("fail: 1 of 5 runs"));
}

TEST(Summary, HostileNamesAreNoMarkup) {
  ResultDocument document;
  document.runs = {made_failure(kHostile, "x")};
  const std::string text = github_summary(test_report("verify", document));
  EXPECT_THAT(text, HasSubstr("| a&lt;b&gt;&amp;\"' \xef\xbf\xbd\\|\\`::error"));
  // Code that is indented is shown as it is.
  const std::string marked = text.substr(0, text.find("\n      lockstep verify"));
  EXPECT_THAT(marked, Not(HasSubstr("<b>")));
}

}  // namespace
}  // namespace lockstep
