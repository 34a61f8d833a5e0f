#include "sim/report/markdown_text.h"

#include <cctype>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Inside a word an underscore is no markup; names of scenarios are full of them.
bool inside_word(std::string_view line, size_t i) {
  return i > 0 && i + 1 < line.size() && is_letter(line[i - 1]) && is_letter(line[i + 1]);
}

void append_line(std::string_view line, std::string* out) {
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '<')
      *out += "&lt;";
    else if (c == '>')
      *out += "&gt;";
    else if (c == '&')
      *out += "&amp;";
    else if (std::string_view("\\`*|[]#~$!@").find(c) != std::string_view::npos ||
             (c == '_' && !inside_word(line, i)))
      *out += {'\\', c};
    else
      *out += c;
  }
}

}  // namespace

std::string markdown_text(std::string_view text) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    append_line(printable(text.substr(0, end)), &out);
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace lockstep
