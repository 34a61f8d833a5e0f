#pragma once

#include <nlohmann/json_fwd.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

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

// XML: for text and for attribute values in double quotes: markup escaped, ends of lines kept as
// they are. What XML 1.0 cannot hold (control characters, bytes that are not UTF-8, U+FFFE, U+FFFF)
// becomes U+FFFD.
std::string xml_text(std::string_view text);
std::string xml_attribute(std::string_view text);

// Prints printable_lines(text) on standard error. Where that is closed or full, nothing happens.
void print_error(std::string_view text) noexcept;

// Commands of ours to a CI system, whose data the caller has escaped: on standard error as they
// are.
void print_commands(std::string_view commands) noexcept;

// The number that a text is, from its first character to its last; nothing where it is none, does
// not fit, or is not finite. Locales count for nothing.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

// Numbers as a reader wants them, in texts and charts.

// 1004311 -> "1,004,311"
std::string grouped(int64_t number);
// "3.1e-16", "0" for exactly zero, "NaN", "Infinity"
std::string scientific(double value);
// Nine significant digits: enough to tell two floats apart. "NaN", "Infinity".
std::string digits_of(double value);
// "run", "runs"
std::string plural(int64_t count, const std::string& one, const std::string& many = "");

// Is `tensor` one of `names`, or does one of them stand before a dot in it? "fc1" names fc1.weight
// and fc1.bias, not fc10.weight.
bool is_named_in(const std::vector<std::string>& names, const std::string& tensor);

// A value as JSON text, cut short after about 60 characters.
std::string value_text(const nlohmann::ordered_json& value);

// printable(), cut short after about 60 characters.
std::string shortened(std::string_view bytes);

// The word that was probably meant: few letters changed, left out, added or swapped.
std::optional<std::string> closest_word(std::string_view word,
                                        const std::vector<std::string>& words);

// "a", "b" or "c"
std::string quoted_list(const std::vector<std::string>& words);

}  // namespace lockstep
