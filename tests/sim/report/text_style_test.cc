#include <gtest/gtest.h>

#include "sim/report/text_style.h"

namespace lockstep {
namespace {

TEST(MarkdownText, NothingIsMarkup) {
  EXPECT_EQ(markdown_text("a <b>|</b> & `c` *d* [e](f) @g #1 !"),
            "a &lt;b&gt;\\|&lt;/b&gt; &amp; \\`c\\` \\*d\\* \\[e\\](f) \\@g \\#1 \\!");
  EXPECT_EQ(markdown_text("world_size=3 _x_"), "world_size=3 \\_x\\_");
  EXPECT_EQ(markdown_text("a\x1b[2Jb"), "a \\[2Jb");
}

TEST(MarkdownText, LinesStayLines) { EXPECT_EQ(markdown_text("a*\nb\n"), "a\\*\nb\n"); }

Table two_runs() {
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("lanes");
  table.column("verdict");
  table.row({"adam", "12", "replica replay", "pass"}, Verdict::pass);
  table.row({"sgd", "3", "", "fail"}, Verdict::fail);
  return table;
}

TEST(Table, HasItsWidthWhereTheTerminalHas) {
  const std::string wide =
      "scenario  runs  lanes           verdict\n"
      "adam        12  replica replay  pass\n"
      "sgd          3                  fail\n";
  EXPECT_EQ(two_runs().text(Style(false)), wide);
  EXPECT_EQ(two_runs().text(Style(false, 39)), wide);
}

TEST(Table, IsFoldedInANarrowTerminal) {
  EXPECT_EQ(two_runs().text(Style(false, 38)),
            "adam\n"
            "  runs 12  lanes replica replay\n"
            "  verdict pass\n"
            "sgd\n"
            "  runs 3  verdict fail\n");
  // What is wider than the terminal stays whole, by itself.
  EXPECT_EQ(two_runs().text(Style(true, 12), "verdict"),
            "adam\n"
            "  runs 12\n"
            "  lanes replica replay\n"
            "  verdict \033[32mpass\033[0m\n"
            "sgd\n"
            "  runs 3\n"
            "  verdict \033[31mfail\033[0m\n");
}

TEST(Table, OfNumbersNamesTheFirstAsWell) {
  Table table;
  table.column("ranks", Table::Align::right);
  table.column("cap MiB", Table::Align::right);
  table.column("");
  table.row({"3", "25", "fitted"});
  EXPECT_EQ(table.text(Style(false, 20)), "ranks 3\n  cap MiB 25  fitted\n");
}

}  // namespace

}  // namespace lockstep
