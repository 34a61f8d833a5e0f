#include "sim/report/text_style.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "sim/report/moving_line.h"

namespace lockstep {
namespace {

int color_of_verdict(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return 32;
    case Verdict::fail:
      return 31;
    case Verdict::inconclusive:
      break;
  }
  return 33;
}

}  // namespace

std::string Style::verdict(std::optional<Verdict> verdict, const std::string& text) const {
  if (!color_ || !verdict) return text;
  return fmt::format("\033[{}m{}\033[0m", color_of_verdict(*verdict), text);
}

bool wants_color(const std::string& when, int fd) {
  if (when != "auto") return when == "always";
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::strcmp(term, "dumb") == 0) return false;
  return isatty(fd) == 1;
}

Style style_of(const std::string& color, int fd) {
  return Style(wants_color(color, fd), isatty(fd) == 1 ? columns_of(fd) : 0);
}

std::string short_path(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/' || home[1] == '\0') return path;
  const std::string prefix = std::string(home) + "/";
  return path.compare(0, prefix.size(), prefix) == 0 ? "~/" + path.substr(prefix.size()) : path;
}

namespace {

// Columns of a terminal: bytes of UTF-8 that begin a character.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

std::string tenths(double value) {
  const int64_t all = std::llround(std::fabs(value) * 10);
  return fmt::format("{}{}.{}", value < 0 && all > 0 ? "-" : "", grouped(all / 10), all % 10);
}

void Table::column(const std::string& header, Align align) { columns_.push_back({header, align}); }

void Table::row(std::vector<std::string> cells, std::optional<Verdict> verdict) {
  LOCKSTEP_CHECK(cells.size() == columns_.size(), "a row has as many cells as there are columns");
  rows_.push_back({std::move(cells), verdict});
}

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(width_of(columns_[c].header));
    for (const Row& row : rows_) widths[c] = std::max(widths[c], width_of(row.cells[c]));
  }
  return widths;
}

namespace {

std::string named(const std::string& header, const std::string& cell) {
  return header.empty() ? cell : header + " " + cell;
}

}  // namespace

std::string Table::folded(const Style& style, const std::string& colored_column) const {
  constexpr size_t kIndent = 2, kGap = 2;
  std::string text;
  for (const Row& row : rows_) {
    const bool is_number = columns_.front().align == Align::right;
    text += named(is_number ? columns_.front().header : "", row.cells.front());
    size_t used = style.columns();  // of the line: the first cell stands by itself
    for (size_t c = 1; c < columns_.size(); ++c) {
      const std::string& cell = row.cells[c];
      if (cell.empty()) continue;
      const std::string& header = columns_[c].header;
      const size_t width = width_of(named(header, cell));
      const bool fits = used + kGap + width <= style.columns();
      text += fits ? std::string(kGap, ' ') : "\n" + std::string(kIndent, ' ');
      used = (fits ? used + kGap : kIndent) + width;
      text += named(header, header == colored_column ? style.verdict(row.verdict, cell) : cell);
    }
    text += "\n";
  }
  return text;
}

std::string Table::text(const Style& style, const std::string& colored_column) const {
  const std::vector<size_t> widths = this->widths();
  const size_t gaps = 2 * (std::max<size_t>(columns_.size(), 1) - 1);
  const size_t width = std::accumulate(widths.begin(), widths.end(), gaps);
  if (style.columns() > 0 && width > style.columns() && !columns_.empty())
    return folded(style, colored_column);
  std::string text;
  const auto line = [&](const auto& cell_of) {
    std::string out;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const auto& [plain, shown] = cell_of(c);
      const std::string pad(widths[c] - width_of(plain), ' ');
      out += (c == 0 ? "" : "  ");
      out += columns_[c].align == Align::right ? pad + shown : shown + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  };
  line([&](size_t c) { return std::pair(columns_[c].header, columns_[c].header); });
  for (const Row& row : rows_)
    line([&](size_t c) {
      const std::string& cell = row.cells[c];
      const bool colored = columns_[c].header == colored_column;
      return std::pair(cell, colored ? style.verdict(row.verdict, cell) : cell);
    });
  return text;
}

std::string Table::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out = "|";
    for (const std::string& cell : cells) out += " " + markdown_text(cell) + " |";
    return out + "\n";
  };
  std::vector<std::string> headers, rules;
  for (const Column& column : columns_) {
    headers.push_back(column.header);
    rules.push_back(column.align == Align::right ? "---:" : "---");
  }
  std::string text = line(headers) + line(rules);
  for (const Row& row : rows_) text += line(row.cells);
  return text;
}

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
