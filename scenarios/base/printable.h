#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// The one filter in front of everything that is printed: what a stranger wrote must not steer a
// terminal, hide text, or give commands to a CI system.

// Valid UTF-8 in one line: bytes that are not text, C1 controls, bidirectional and zero-width
// controls become U+FFFD; other control characters and line separators become spaces.
std::string printable(std::string_view bytes);

// The same for text of several lines. Newlines and tabs stay; so do our own terminal sequences
// (colors, "\r" and erasing the line). A line that a CI system would take as a command ("::" or
// "##[" at its start) gets a space between its first two characters.
std::string printable_lines(std::string_view text);

// Length of the valid UTF-8 sequence at the start of `bytes`; 0 if there is none.
size_t utf8_length(std::string_view bytes);

// Prints printable_lines(text) on standard error. Where that is closed or full, nothing happens.
void print_error(std::string_view text) noexcept;

// Commands of ours to a CI system, whose data the caller has escaped: on standard error as they
// are.
void print_commands(std::string_view commands) noexcept;

}  // namespace lockstep
