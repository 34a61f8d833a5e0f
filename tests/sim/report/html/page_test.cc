#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <string>

#include "sim/report/html/page.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(HtmlPage, JsonStaysTheSameAndEndsNoScript) {
  const nlohmann::json hostile = {{"</script><script>alert(1)</script>", "<!--"},
                                  {"b", "]]> & \xe2\x80\xa8 \xe2\x80\xa9 \" \\ \xe2\x82\xac"},
                                  {"c", {1, nullptr, "\u202e"}}};
  const std::string text = json_in_script(hostile.dump());
  for (const char* part : {"<", ">", "&", "\xe2\x80\xa8", "\xe2\x80\xa9"})
    EXPECT_THAT(text, Not(HasSubstr(part)));
  EXPECT_THAT(text, HasSubstr("\xe2\x82\xac"));
  EXPECT_EQ(nlohmann::json::parse(text), hostile);
  EXPECT_EQ(json_in_script("\xe2\x80"), "\xe2\x80");
}

TEST(HtmlPage, ColoursAreLeftOut) {
  EXPECT_EQ(without_colors("\x1b[32mpass\x1b[0m: 1 run\n"), "pass: 1 run\n");
  EXPECT_EQ(without_colors("\x1b[1;31mfail\x1b[m"), "fail");
  EXPECT_EQ(without_colors("a\x1b[2Jb\x1b["), "a\x1b[2Jb\x1b[");
  EXPECT_EQ(without_colors(""), "");
}

TEST(HtmlPage, HashesAreThoseOfThePolicy) {
  EXPECT_EQ(csp_hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
}

TEST(HtmlPage, ForeignTextIsText) {
  const std::string page = html_page({.verb = "run",
                                      .text = "one <b>\x1b[2J\n</pre><script>x</script> & \"q\"\n",
                                      .result = R"({"name": "</script>"})",
                                      .timelines = {R"({"name": "<!--"})", "{}"},
                                      .exit_code = 1,
                                      .command = "lockstep run '\"><script>'"});
  EXPECT_EQ(count(page, "<script"), 4u);
  EXPECT_EQ(count(page, "</script>"), 4u);
  EXPECT_THAT(page, HasSubstr("<p id=\"verdict\" class=\"fail\">&lt;/pre&gt;&lt;script&gt;x"));
  EXPECT_THAT(page, HasSubstr("data-command=\"lockstep run '&quot;&gt;&lt;script&gt;'\""));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
}

TEST(HtmlPage, ThePolicyNamesWhatIsInThePage) {
  const std::string page = html_page({.verb = "verify", .text = "pass\n", .result = "{}"});
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  EXPECT_THAT(page, HasSubstr("style-src " + csp_hash(page_style()) + ";"));
  EXPECT_THAT(page, HasSubstr(csp_hash(page_script())));
  EXPECT_THAT(page, HasSubstr("<p id=\"verdict\" class=\"pass\">pass</p>"));
}

// The licence asks for that; and whatever is embedded must be able to stand in a script.
TEST(HtmlPage, HasD3WithItsLicence) {
  const std::string page = html_page({.verb = "verify", .text = "pass\n", .result = "{}"});
  EXPECT_THAT(page, HasSubstr("Copyright 2010-2023 Mike Bostock\n\nPermission to use, copy"));
  for (const std::string text : {page_d3(), page_script(), page_d3_license()}) {
    EXPECT_THAT(text, Not(HasSubstr("</script")));
    EXPECT_THAT(text, Not(HasSubstr("<!--")));
  }
  EXPECT_THAT(std::string(page_script()), Not(HasSubstr("innerHTML")));
}

}  // namespace
}  // namespace lockstep
