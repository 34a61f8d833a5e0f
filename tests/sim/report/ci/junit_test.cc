#include "sim/report/ci/junit.h"

#include <gmock/gmock.h>

#include "scenarios/base/text.h"
#include "tests/sim/report/ci/made_report.h"
#include "tests/sim/report/well_formed.h"
#include "tests/sim/sweep/made_sweep.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string without_prolog(const std::string& text) { return text.substr(text.find('\n') + 1); }

TEST(Junit, ACaseARunNeitherPassNorFailAnError) {
  const std::string text = junit_text(test_report("verify", made_document()));
  EXPECT_EQ(why_not_well_formed(without_prolog(text)), "");
  EXPECT_THAT(text, HasSubstr("<testsuites name=\"lockstep verify\" tests=\"6\" failures=\"1\" "
                              "errors=\"1\" skipped=\"2\" time=\"2.100\">"));
  EXPECT_THAT(text, HasSubstr("<testsuite name=\"toy\" tests=\"3\" failures=\"0\" errors=\"1\" "
                              "skipped=\"1\" time=\"0.840\">"));
  EXPECT_THAT(text, HasSubstr("<testcase classname=\"toy\" name=\"toy\" time=\"0.420\" "
                              "file=\"scenarios/toy.json\">"));
  EXPECT_THAT(text, HasSubstr("<failure type=\"order_only\" message=\"step 2, gradient of "
                              "fc2.weight, bucket 1, element [17, 4]: order_only: the same "
                              "addends in another order\">fail  mlp  world_size=3"));
  EXPECT_THAT(text,
              HasSubstr("<error type=\"hang\" message=\"rank 2 never entered all_reduce 57\""));
  EXPECT_THAT(text, HasSubstr("<skipped message=\"known, the baseline has it too: step 2"));
  EXPECT_THAT(text, HasSubstr("<skipped message=\"not run to its end"));
  for (const char* property :
       {"name=\"seed\" value=\"123\"", "name=\"world_size\" value=\"3\"",
        "name=\"reducer\" value=\"bucketed\"", "name=\"communicator\" value=\"gloo\"",
        "name=\"libtorch\" value=\"1.13.1\"", "name=\"primary_rank\" value=\"2\""})
    EXPECT_THAT(text, HasSubstr(property));
}

TEST(Junit, WhatXmlCannotHoldIsReplaced) {
  EXPECT_EQ(xml_text("a<b>&\"\n\t"), "a&lt;b&gt;&amp;\"\n&#9;");
  EXPECT_EQ(xml_attribute("\"\n\t"), "&quot;&#10;&#9;");
  EXPECT_EQ(xml_text("\r"), "&#13;");
  for (const char* bad : {"\x01", "\x7f", "\xff", "\xc2\x85", "\xef\xbf\xbf", "\xed\xa0\x80"})
    EXPECT_THAT(xml_text(bad), HasSubstr("\xef\xbf\xbd")) << bad;
  EXPECT_EQ(xml_text("\xc3\xbc\xf0\x9f\x98\x80"), "\xc3\xbc\xf0\x9f\x98\x80");
}

TEST(Junit, HostileNamesStayNames) {
  ResultDocument document = made_document();
  for (RunResult& run : document.runs) {
    run.name = run.label = run.file = run.again = kHostile;
    if (run.first_divergence) run.first_divergence->tensor = kHostile;
    if (run.failure) run.failure->message = kHostile;
  }
  const std::string text = junit_text(test_report(kHostile, document));
  EXPECT_EQ(why_not_well_formed(without_prolog(text)), "");
  EXPECT_THAT(text, HasSubstr("a&lt;b&gt;&amp;&quot;"));
  EXPECT_THAT(text, Not(HasSubstr("]]>")));
}

TEST(Junit, OfASweepACaseACombination) {
  MadeSweep sweep;
  sweep.add(2, "bucketed", 4, 98.3, 0.1, 5);
  sweep.add(2, "bucketed", 25, 100, 9.7, 10);
  SweepDocument document;
  document.scenario = "s";
  document.file = "s.json";
  document.lines = sweep.results(8);
  document.watch = machine_verdict(std::vector<Spins>(16, {4, 4}), 4, 0);
  document.lines[1].wrong = 2;
  document.thresholds.emplace_back(Threshold{"step_ms", "<=", 99},
                                   Judgement{Verdict::fail, {"too long"}});
  conclude(&document);
  const CaseCounts counts = counts_of(test_report(document).cases);
  EXPECT_EQ(counts.all, 3);
  EXPECT_EQ(counts.failed, 2);
  EXPECT_EQ(counts.inconclusive, 0);
  document.lines[1].wrong = 0;
  document.thresholds.clear();
  document.signal = 2;
  conclude(&document);
  const TestReport undecided = test_report(document);
  EXPECT_EQ(counts_of(undecided.cases).inconclusive, 1);  // so that nobody takes it for a pass
  EXPECT_EQ(undecided.cases.back().group, "s");
}

TEST(Junit, OfBadInputIsAnError) {
  const TestReport report =
      test_report(InputErrors{{"a.json", 7, 3, "/x", "unknown key", "a known one"}});
  EXPECT_EQ(counts_of(report.cases).inconclusive, 1);
  EXPECT_EQ(report.cases[0].message, "unknown key; expected a known one");
  EXPECT_EQ(report.cases[0].line, 7);
  EXPECT_EQ(why_not_well_formed(without_prolog(junit_text(report))), "");
}

}  // namespace
}  // namespace lockstep
