#include "scenarios/base/printable.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace lockstep
