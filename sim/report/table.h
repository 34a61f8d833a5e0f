#pragma once

#include <string>
#include <vector>

#include "sim/report/style.h"

namespace lockstep {

// A cell: "1,203.1"; no "-0.0".
std::string tenths(double value);

// Columns as wide as their widest cell, two blanks apart; never wrapped, never cut.
class Table {
 public:
  enum class Align { left, right };
  void column(const std::string& header, Align align = Align::left);
  // One cell a column; `verdict` colours the cell in the column of that header.
  void row(std::vector<std::string> cells, const std::string& verdict = "");
  std::string text(const Style& style, const std::string& colored_column = "") const;
  std::string markdown() const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  struct Row {
    std::vector<std::string> cells;
    std::string verdict;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace lockstep
