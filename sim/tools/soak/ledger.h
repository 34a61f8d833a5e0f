#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/tools/soak/works.h"

namespace lockstep {

// What a soak has run so far: FOLDER/ledger.jsonl, a line for each slice, appended when it has
// ended. Ledgers of several machines are one by being read one after another.

struct SoakSlice {
  SoakWork work = SoakWork::mutants;
  uint64_t seed = 0;  // the first of `seeds`
  int64_t seeds = 0;
  SoakCounts counts;
  std::string broken;  // why nothing can be said of it; empty: its counts hold
  double duration_s = 0;
  std::string commit, libtorch;
};
std::string ledger_path(const std::string& folder);
nlohmann::ordered_json as_json(const SoakSlice& slice);

// Nothing where there is no ledger. Of the same slice of the same commit and LibTorch there is one,
// however often it was run.
Expected<std::vector<SoakSlice>> read_ledger(const std::string& folder);
std::vector<SoakSlice> merged(std::vector<SoakSlice> slices);

// Of one kind of work on one commit.
struct SoakTotal {
  std::string commit, libtorch;
  SoakWork work = SoakWork::mutants;
  int64_t slices = 0, runs = 0, failures = 0, undecided = 0, broken = 0;
  double duration_s = 0;
};
// Commits in the order in which they come, works in that of their table.
std::vector<SoakTotal> totals(const std::vector<SoakSlice>& slices);
SoakTotal sum_of(const std::vector<SoakTotal>& totals);

// rate_bound_95() of failures where there was none; where there was one, no such bound: -1.
double rate_below_95(const SoakTotal& total);

}  // namespace lockstep
