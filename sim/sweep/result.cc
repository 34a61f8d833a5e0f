#include "sim/sweep/result.h"

#include <algorithm>

#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

template <class Get>
std::vector<double> over_runs(const std::vector<SweepRun>& runs, Get get) {
  std::vector<double> values;
  for (const SweepRun& run : runs) values.push_back(get(run.numbers));
  return values;
}

CellResult summary_of(const Cell& cell, std::vector<SweepRun> runs, uint64_t seed) {
  CellResult result;
  result.cell = cell;
  std::sort(runs.begin(), runs.end(),
            [](const SweepRun& a, const SweepRun& b) { return a.round < b.round; });
  const auto estimate = [&](double RunNumbers::*member) {
    return bootstrap_median(over_runs(runs, [&](const RunNumbers& n) { return n.*member; }),
                            kConfidence, seed);
  };
  result.step_ms = estimate(&RunNumbers::step_ms);
  result.backward_ms = estimate(&RunNumbers::backward_ms);
  result.exposed_ms = estimate(&RunNumbers::exposed_ms);
  result.skew_ms = estimate(&RunNumbers::skew_ms);
  std::vector<double> overlaps;
  for (const SweepRun& run : runs) {
    if (run.numbers.overlap) overlaps.push_back(*run.numbers.overlap);
    result.wrong += run.replicas == "differ";
    result.not_compared += run.replicas == "not_compared";
  }
  if (!overlaps.empty()) result.overlap = bootstrap_median(overlaps, kConfidence, seed);
  result.tail_mb = runs.back().numbers.tail_mb;
  result.buckets = runs.back().numbers.buckets;
  result.outlier_runs = static_cast<int64_t>(
      outliers(over_runs(runs, [](const RunNumbers& n) { return n.step_ms; })).size());
  result.runs = std::move(runs);
  return result;
}

}  // namespace

std::vector<CellResult> cell_results(const std::vector<Cell>& cells,
                                     const std::vector<SweepRun>& runs, uint64_t seed) {
  std::vector<CellResult> results;
  for (size_t i = 0; i < cells.size(); ++i) {
    std::vector<SweepRun> own;
    std::copy_if(runs.begin(), runs.end(), std::back_inserter(own),
                 [&](const SweepRun& run) { return run.cell == i; });
    if (!own.empty())
      results.push_back(
          summary_of(cells[i], std::move(own), substream_seed(seed, "sweep_cell", i)));
  }
  return results;
}

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = {"step_ms", "backward_ms", "exposed_ms", "overlap",
                                                 "skew_ms", "tail_mb",     "buckets",    "wrong"};
  return names;
}

std::optional<Estimate> metric_of(const CellResult& cell, const std::string& name) {
  const auto exact = [](auto value) {
    const auto number = static_cast<double>(value);
    return Estimate{number, number, number};
  };
  if (name == "step_ms") return cell.step_ms;
  if (name == "backward_ms") return cell.backward_ms;
  if (name == "exposed_ms") return cell.exposed_ms;
  if (name == "overlap") return cell.overlap;
  if (name == "skew_ms") return cell.skew_ms;
  if (name == "tail_mb") return exact(cell.tail_mb);
  if (name == "buckets") return exact(cell.buckets);
  LOCKSTEP_CHECK(name == "wrong", "metric " + name);
  return exact(cell.wrong);
}

}  // namespace lockstep
