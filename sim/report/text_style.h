#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/text.h"
#include "scenarios/base/verdict.h"

namespace lockstep {

// Colour only ever means verdict: green pass, red fail, yellow inconclusive.
class Style {
 public:
  // `columns`: of the terminal; 0: no terminal, lines may be of any length.
  explicit Style(bool color, size_t columns = 0) : color_(color), columns_(columns) {}
  // `text` in the colour of `verdict`; nothing leaves it as it is.
  std::string verdict(std::optional<Verdict> verdict, const std::string& text) const;
  std::string verdict(Verdict said) const { return verdict(said, to_word(said)); }
  bool color() const { return color_; }
  size_t columns() const { return columns_; }

 private:
  bool color_;
  size_t columns_;
};

// --color auto|always|never for a file descriptor; NO_COLOR and TERM=dumb turn auto off.
bool wants_color(const std::string& when, int fd);

// What goes to a file descriptor: colours as above, and tables no wider than the terminal.
Style style_of(const std::string& color, int fd);

// A path below the user's home as "~/...".
std::string short_path(const std::string& path);

// A cell: "1,203.1"; no "-0.0".
std::string tenths(double value);

// Columns as wide as their widest cell, two blanks apart; never cut. In a terminal that is
// narrower, each row is its first cell and, below it, "header cell" of the others, as many as a
// line holds: what is empty is left out there.
class Table {
 public:
  enum class Align { left, right };
  void column(const std::string& header, Align align = Align::left);
  // One cell a column; `verdict` colours the cell in the column of that header.
  void row(std::vector<std::string> cells, std::optional<Verdict> verdict = {});
  std::string text(const Style& style, const std::string& colored_column = "") const;
  std::string markdown() const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  struct Row {
    std::vector<std::string> cells;
    std::optional<Verdict> verdict;
  };
  std::vector<size_t> widths() const;
  std::string folded(const Style& style, const std::string& colored_column) const;
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// A name or sentence in one line of GitHub's Markdown, in a table or out of one: nothing of it is
// markup, HTML or a mention. Line by line where it has several.
std::string markdown_text(std::string_view text);

}  // namespace lockstep
