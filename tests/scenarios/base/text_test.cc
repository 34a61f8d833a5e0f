#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

constexpr const char* kReplaced = "\xef\xbf\xbd";

TEST(Printable, TextStaysAsItIs) {
  const std::string text = "größer ≤ 3 µs, 日本, 🙂";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable_lines(text + "\n\ta\n"), text + "\n\ta\n");
}

TEST(Printable, NothingSteersATerminal) {
  EXPECT_EQ(printable("a\nb\tc\x1b[2J\x7f"), "a b c [2J ");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            std::string(kReplaced) + "2J");  // C1: CSI
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "abc"),
            std::string(kReplaced) + "abc");  // right to left
  EXPECT_EQ(printable("\xe2\x81\xa6"
                      "abc"),
            std::string(kReplaced) + "abc");  // isolate
  EXPECT_EQ(printable("a\xe2\x80\x8b"
                      "b"),
            std::string("a") + kReplaced + "b");  // no width
  EXPECT_EQ(printable("a\xe2\x80\xa8"
                      "b"),
            "a b");  // a line's end
  EXPECT_EQ(printable("a\xff"), std::string("a") + kReplaced);
}

TEST(PrintableLines, OnlyOurOwnSequencesPass) {
  EXPECT_EQ(printable_lines("\033[32mpass\033[0m\n"), "\033[32mpass\033[0m\n");
  EXPECT_EQ(printable_lines("\r\033[K3 of 4"), "\r\033[K3 of 4");
  EXPECT_EQ(printable_lines("\033[8mhidden"), " [8mhidden");
  EXPECT_EQ(printable_lines("\033[2J\033]0;title\007"), " [2J ]0;title ");
  EXPECT_EQ(printable_lines("\033[3"), " [3");
  EXPECT_EQ(printable_lines("\xc2\x9b"
                            "31m"),
            std::string(kReplaced) + "31m");
}

TEST(PrintableLines, NoLineIsACommandToACiSystem) {
  EXPECT_EQ(printable_lines("::error title=x::y"), ": :error title=x::y");
  EXPECT_EQ(printable_lines("a\n  ::stop-commands::x\n"), "a\n  : :stop-commands::x\n");
  EXPECT_EQ(printable_lines("a\n##[error]x"), "a\n# #[error]x");
  EXPECT_EQ(printable_lines("\033[32m::add-mask::a"), "\033[32m: :add-mask::a");
  EXPECT_EQ(printable_lines("a\r::set-env::"), "a\r: :set-env::");
  EXPECT_EQ(printable_lines("std::vector"), "std::vector");
}

TEST(Words, SuggestsTheWordThatWasMeant) {
  const std::vector<std::string> words = {"world_size", "steps", "seed", "batch_size"};
  EXPECT_EQ(closest_word("wrld_size", words), "world_size");
  EXPECT_EQ(closest_word("setps", words), "steps");
  EXPECT_EQ(closest_word("batchsize", words), "batch_size");
  EXPECT_EQ(closest_word("optimizer", words), std::nullopt);
  EXPECT_EQ(closest_word("x", words), std::nullopt);
  EXPECT_EQ(closest_word(std::string(100'000, 'a'), words), std::nullopt);
}

TEST(Words, PrintableIsValidText) {
  EXPECT_EQ(printable("a\xff\nb\xc3\xa9\xc3"), "a\xef\xbf\xbd b\xc3\xa9\xef\xbf\xbd");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Words, LongValuesAreCutBetweenCharacters) {
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  const std::string text = value_text(euros);
  EXPECT_LT(text.size(), 70U);
  EXPECT_TRUE(text.ends_with("\xe2\x82\xac..."));
  EXPECT_EQ(value_text(nlohmann::ordered_json::parse(R"({"b": 1, "a": [2]})")),
            R"({"b":1,"a":[2]})");
}

}  // namespace

}  // namespace lockstep
