#include "sim/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenarios/base/error.h"
#include "sim/report/markdown_text.h"

namespace lockstep {
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

void Table::row(std::vector<std::string> cells, const std::string& verdict) {
  LOCKSTEP_CHECK(cells.size() == columns_.size(), "a row has as many cells as there are columns");
  rows_.push_back({std::move(cells), verdict});
}

std::string Table::text(const Style& style, const std::string& colored_column) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(width_of(columns_[c].header));
    for (const Row& row : rows_) widths[c] = std::max(widths[c], width_of(row.cells[c]));
  }
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

}  // namespace lockstep
