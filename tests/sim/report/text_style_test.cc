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

}  // namespace

}  // namespace lockstep
