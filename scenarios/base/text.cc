#include "scenarios/base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

struct CodeRange {
  uint32_t first, last;
};
// Never shown as they are: C1, bidirectional controls, what has no width, tags, private controls.
constexpr std::array kUnseen = {CodeRange{0x80, 0x9f},     CodeRange{0xad, 0xad},
                                CodeRange{0x61c, 0x61c},   CodeRange{0x180e, 0x180e},
                                CodeRange{0x200b, 0x200f}, CodeRange{0x202a, 0x202e},
                                CodeRange{0x2060, 0x206f}, CodeRange{0xfeff, 0xfeff},
                                CodeRange{0xfff9, 0xfffb}, CodeRange{0xe0000, 0xe007f}};

uint32_t code_of(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xff >> (sequence.size() + 1));
  for (size_t i = 1; i < sequence.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

// What stands for one valid sequence.
std::string_view shown(std::string_view sequence) {
  const uint32_t code = code_of(sequence);
  if (code < 0x20 || code == 0x7f || code == 0x2028 || code == 0x2029) return " ";
  for (const CodeRange& range : kUnseen)
    if (code >= range.first && code <= range.last) return kReplacement;
  return sequence;
}

// "\033[32m", "\033[0m" or "\033[K" at the start of `text`: its length, else 0.
size_t own_sequence(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  size_t end = 2;
  while (end < text.size() && end < 5 && text[end] >= '0' && text[end] <= '9') ++end;
  if (end >= text.size()) return 0;
  const std::string_view digits = text.substr(2, end - 2);
  if (text[end] == 'K' && digits.empty()) return end + 1;
  const bool color = digits == "0" || digits == "1" || digits == "2" ||
                     (digits.size() == 2 && digits[0] == '3' && digits[1] < '8');
  return color && text[end] == 'm' ? end + 1 : 0;
}

bool is_ci_command(std::string_view rest) {
  return rest.starts_with("::") || rest.starts_with("##[");
}

}  // namespace

size_t utf8_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.empty()) return 0;
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (first == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (first == 0xed && byte(1) >= 0xa0) return 0;  // a surrogate
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

std::string printable(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    text += length == 0 ? kReplacement : shown(bytes.substr(0, length));
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

std::string printable_lines(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  bool line_start = true;
  while (!bytes.empty()) {
    const char first = bytes.front();
    size_t length = own_sequence(bytes);
    if (length == 0 && (first == '\n' || first == '\t' || first == '\r')) length = 1;
    if (length > 0) {
      text += bytes.substr(0, length);
      line_start = line_start || first == '\n' || first == '\r';
    } else {
      length = std::max<size_t>(utf8_length(bytes), 1);
      const std::string one = printable(bytes.substr(0, length));
      text += one;
      if (line_start && is_ci_command(bytes)) text += ' ';
      line_start = line_start && one == " ";
    }
    bytes.remove_prefix(length);
  }
  return text;
}

void print_commands(std::string_view commands) noexcept {
  std::fwrite(commands.data(), 1, commands.size(), stderr);
  std::fflush(stderr);
}

void print_error(std::string_view text) noexcept {
  try {
    const std::string safe = printable_lines(text);
    std::fwrite(safe.data(), 1, safe.size(), stderr);
    std::fflush(stderr);
  } catch (const std::exception&) {  // no memory for the copy: nothing is better than raw bytes
  }
}

std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string scientific(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value == 0 ? "0" : fmt::format("{:.1e}", value);
}

std::string digits_of(double value) {
  if (!std::isfinite(value)) return scientific(value);
  return fmt::format("{:.9g}", value);
}

std::string plural(int64_t count, const std::string& one, const std::string& many) {
  if (count == 1) return one;
  return many.empty() ? one + "s" : many;
}

bool is_named_in(const std::vector<std::string>& names, const std::string& tensor) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return tensor == name || tensor.starts_with(name + ".");
  });
}

namespace {

// Edit distance with swaps of neighbours (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string shortened(std::string_view bytes) {
  constexpr size_t kLongest = 60;
  if (bytes.size() <= kLongest) return printable(bytes);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(bytes[end]) & 0xc0) == 0x80) --end;
  return printable(bytes.substr(0, end)) + "...";
}

std::string value_text(const nlohmann::ordered_json& value) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  return shortened(value.dump(-1, ' ', false, Handler::replace));
}

std::optional<std::string> closest_word(std::string_view word,
                                        const std::vector<std::string>& words) {
  if (word.size() > 64) return {};
  std::optional<std::string> best;
  size_t fewest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : words) {
    const size_t edits = edit_distance(word, candidate);
    if (edits < fewest && edits < candidate.size()) {
      fewest = edits;
      best = candidate;
    }
  }
  return best;
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += fmt::format("\"{}\"", words[i]);
  }
  return text;
}

namespace {

bool is_xml_character(std::string_view character) {
  if (character.size() == 1) {
    const char c = character.front();
    return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c != 0x7f);
  }
  if (character.size() == 2 && character[0] == '\xc2')  // C1 controls: legal, and of no use
    return static_cast<unsigned char>(character[1]) >= 0xa0;
  return character != "\xef\xbf\xbe" && character != "\xef\xbf\xbf";
}

// `quoted`: in an attribute, whose white space a parser would turn into blanks.
std::string xml_escaped(std::string_view text, bool quoted) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text.substr(i));
    const std::string_view character = text.substr(i, length);
    i += std::max<size_t>(length, 1);
    if (length == 0 || !is_xml_character(character))
      out += kReplacement;
    else if (character == "&")
      out += "&amp;";
    else if (character == "<")
      out += "&lt;";
    else if (character == ">")
      out += "&gt;";
    else if (quoted && character == "\"")
      out += "&quot;";
    else if (character == "\r" || character == "\t" || (quoted && character == "\n"))
      out += fmt::format("&#{};", static_cast<int>(character.front()));
    else
      out += character;
  }
  return out;
}

}  // namespace

std::string xml_text(std::string_view text) { return xml_escaped(text, false); }
std::string xml_attribute(std::string_view text) { return xml_escaped(text, true); }

}  // namespace lockstep
