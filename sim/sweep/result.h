#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/sweep/design.h"
#include "sim/sweep/measure.h"
#include "sim/sweep/statistics.h"

namespace lockstep {

// One run that was measured.
struct SweepRun {
  size_t cell = 0;
  int64_t round = 0;
  Spins spins;
  std::string replicas;  // same | differ | not_compared: lane replica on the final weights
  RunNumbers numbers;
};

// One line of the table: medians over rounds of the runs' medians, with their intervals.
struct CellResult {
  Cell cell;
  std::vector<SweepRun> runs;  // by round
  Estimate step_ms, backward_ms, exposed_ms, skew_ms;
  std::optional<Estimate> overlap;
  double tail_mb = 0;
  int64_t buckets = 0;
  int64_t wrong = 0;         // runs whose replicas differ
  int64_t not_compared = 0;  // runs in which there was nothing to compare
  int64_t outlier_runs = 0;  // by their step_ms, among rounds
};

// One run alone has none.
bool has_interval(const CellResult& line);
// "1.2 .. 2.1" of a line's step times, or "-".
std::string interval_text(const CellResult& line, int digits);

// Cells without a run are absent.
std::vector<CellResult> cell_results(const std::vector<Cell>& cells,
                                     const std::vector<SweepRun>& runs, uint64_t seed);

// The numbers of a line by their names in --json: step_ms, backward_ms, exposed_ms, overlap,
// skew_ms, tail_mb, buckets, wrong.
const std::vector<std::string>& metric_names();
// `name` is one of them. Nothing where a line has no such number (overlap without communication).
std::optional<Estimate> metric_of(const CellResult& cell, const std::string& name);

// One combination against another, over the rounds in which both were measured: the ratio of their
// step times.
struct Contrast {
  size_t cell = 0, against = 0;  // places in the results
  Estimate ratio;                // median of step_ms of `cell` / of `against`, of the same round
  int64_t rounds = 0, rounds_needed = 0;  // least_rounds() of all that are compared alongside
  // Simultaneously at 95 % for all that are compared alongside, and in enough rounds.
  bool significant = false;
  std::string text;  // "4 MiB: 1.7 % faster than 25 MiB (95 % interval 1.2 .. 2.1), because ..."
};

// For each group of cells that differ in nothing but their cap: the fastest against DDP's default,
// or against the largest cap where that was not measured.
std::vector<Contrast> cap_contrasts(const std::vector<CellResult>& cells, uint64_t seed);

// For each world size every other reducer against the first one; where something else is varied,
// for each reducer every variation against that in which the last key that has not its first value
// has it, so that a pair differs in one key. At the default cap, at the largest
// cap where that was not measured, or at none.
std::vector<Contrast> reducer_contrasts(const std::vector<CellResult>& cells, uint64_t seed);

}  // namespace lockstep
