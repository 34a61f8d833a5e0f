#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/plan.h"

namespace lockstep {

// What is measured, and in which order.

// One combination: a line of the table.
struct Cell {
  int64_t world_size = 1;
  std::string reducer;
  std::optional<double> cap_mb;      // MiB; nothing for a reducer that has no cap
  std::vector<double> same_caps_mb;  // others that give the same buckets: measured once
  // What else is varied: ("/reducer/find_unused_parameters", "true").
  std::vector<std::pair<std::string, std::string>> varied;
  RunPlan plan;
  // Where one process has all replicas, so that lane replica has nothing to compare: a short run
  // that is not measured, whose lane float64 says whether what is measured is right.
  std::optional<RunPlan> check;
};

// "world_size=2 reducer=bucketed bucket_cap_mb=4 find_unused_parameters=true"
std::string label_of(const Cell& cell);

// The same without the cap: cells that differ in nothing else are compared with each other.
std::string group_of(const Cell& cell);

// Merges neighbours whose buckets are the same: of them DDP's default stays, else the first.
std::vector<Cell> merged_by_layout(std::vector<Cell> cells);

// The order in which round `round` (from 0) measures cells 0 .. count - 1: shuffled anew in every
// second round, and backwards in the one after it, so that a machine that becomes slower at a
// steady rate disturbs all alike (A B B A).
std::vector<size_t> order_of_round(size_t count, int64_t round, uint64_t seed);

// "1,2.5,25" in MiB. Bad input: what is no number, not above 0, above 65536, or given twice.
Expected<std::vector<double>> parse_caps(const std::string& text);
// "2,4". Bad input: what is no whole number from 1 to 4096, or given twice.
Expected<std::vector<int64_t>> parse_worlds(const std::string& text);
// "bucketed,c10d". Bad input: what is no reducer, with a suggestion, or given twice.
Expected<std::vector<std::string>> parse_reducers(const std::string& text);

}  // namespace lockstep
