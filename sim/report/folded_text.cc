#include "sim/report/folded_text.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kRoomLeast = 24;  // for a description beside its option
constexpr size_t kIndent = 6;      // of one that begins on a line of its own

// `words` from column `at` on, each further line indented.
void put_words(std::string_view words, size_t at, size_t indent, size_t columns,
               std::string* text) {
  bool begins = true;  // the line, as far as words go
  while (!words.empty()) {
    const size_t length = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, length);
    if (!begins && at + 1 + length > columns) {
      *text += "\n" + std::string(indent, ' ');
      at = indent;
      begins = true;
    }
    if (!begins) *text += ' ';
    at += length + (begins ? 0 : 1);
    *text += word;
    begins = false;
    words.remove_prefix(std::min(length + 1, words.size()));
  }
}

// Where the description of an option begins; 0: the line has none beside it.
size_t description_of(std::string_view line) {
  const size_t option = line.find_first_not_of(' ');
  const size_t gap = line.find("  ", option);
  return gap == std::string_view::npos ? 0 : line.find_first_not_of(' ', gap);
}

std::string folded_line(std::string_view line, size_t columns) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const size_t described = description_of(line);
  std::string text;
  if (described == 0) {
    // A description without its option, which was too long for the line, keeps its column.
    const bool hangs = indent >= kIndent && columns < indent + kRoomLeast;
    const size_t begin = hangs ? kIndent : indent;
    text.assign(begin, ' ');
    put_words(line.substr(indent), begin, hangs || indent >= kIndent ? begin : indent + 2, columns,
              &text);
  } else if (columns >= described + kRoomLeast) {
    text = line.substr(0, described);
    put_words(line.substr(described), described, described, columns, &text);
  } else {
    text = line.substr(0, line.find_last_not_of(' ', described - 1) + 1);
    text += "\n" + std::string(kIndent, ' ');
    put_words(line.substr(described), kIndent, kIndent, columns, &text);
  }
  return text;
}

}  // namespace

std::string folded_help(std::string_view text, size_t columns) {
  std::string folded;
  bool examples = false;
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    if (!line.empty() && line.front() != ' ') examples = line.substr(0, 8) == "Examples";
    folded += length <= columns || examples ? std::string(line) : folded_line(line, columns);
    if (length < text.size()) folded += '\n';
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return folded;
}

}  // namespace lockstep
