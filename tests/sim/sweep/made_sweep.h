#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/sweep/result.h"

namespace lockstep {

// Runs of a sweep that never was.
struct MadeSweep {
  double noise = 0;  // sigma of a lognormal factor on each run
  uint64_t seed = 1;

  void add(int64_t world_size, const std::string& reducer, std::optional<double> cap_mb,
           double step_ms, double tail_mb, double exposed_ms) {
    Cell cell;
    cell.world_size = world_size;
    cell.reducer = reducer;
    cell.cap_mb = cap_mb;
    cells.push_back(cell);
    RunNumbers& n = numbers.emplace_back();
    n.step_ms = n.backward_ms = step_ms;
    n.tail_mb = tail_mb;
    n.exposed_ms = exposed_ms;
    n.buckets = 3;
  }

  std::vector<CellResult> results(int64_t rounds) const {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> factor(0, noise);
    std::vector<SweepRun> runs;
    for (int64_t round = 0; round < rounds; ++round)
      for (size_t i = 0; i < cells.size(); ++i) {
        runs.push_back({i, round, {4, 4}, "same", numbers[i]});
        if (noise > 0) runs.back().numbers.step_ms *= factor(random);
      }
    return cell_results(cells, runs, seed);
  }

  std::vector<Cell> cells;
  std::vector<RunNumbers> numbers;
};

}  // namespace lockstep
