#pragma once

#include <string>
#include <vector>

namespace lockstep {

// A machine fitted to one row of a published table (sim/calibrate/row_fit.h), and all of its rows
// in virtual time.
struct TableOptions {
  std::vector<std::string> scenarios;  // one
  std::string table;
  std::string machine;  // whose links are taken: a file or a word; empty: the default
  std::vector<std::string> sets;
  std::string out;  // the machine file; empty: standard output shows what was compared
  bool quiet = false;
};
int calibrate_on_table(const TableOptions& options);

}  // namespace lockstep
