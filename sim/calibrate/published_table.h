#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// Step times that somebody published (scenarios/table_schema.json).
struct PublishedRow {
  int64_t ranks = 1;
  std::optional<double> cap_mb;        // MiB; none: the scenario's
  double ms = 0;                       // a step; > 0
  bool synchronized = true;            // false: one rank's compute alone, without a reducer
  bool fitted = false;                 // what a machine is fitted to
  std::optional<int64_t> passes = {};  // micro-batches of a step; none: the scenario's
  std::optional<double> samples = {};  // of a rank in a step, where they are said
  InputError place = {};               // where it stands in its file, without a message
};
struct PublishedTable {
  std::string source;
  std::vector<PublishedRow> rows;
};

// One row is to be fitted, and at most one is of compute alone. Bad input: the file, with place,
// value and allowed range.
Expected<PublishedTable> read_published_table(const std::string& path);

}  // namespace lockstep
