#include <algorithm>
#include <cmath>

#include "scenarios/parse/suite.h"
#include "sim/calibrate/row_fit.h"
#include "sim/plan/plan.h"
#include "tests/fuzz/fuzz.h"

// A published table of step times, and a machine that is fitted to a short one.
namespace {

using namespace lockstep;  // NOLINT

constexpr uint64_t kFitted = 4096;  // of so many tables one: each takes a second or two
constexpr size_t kMostRows = 3;
constexpr int64_t kMostRanks = 4;

constexpr std::string_view kScenario = R"({
  "name": "two_layers", "what": "made", "world_size": 2, "steps": 3, "batch_size": 4,
  "model": {"kind": "parameters", "parameters": ["a.weight 64x64", "b.weight 64x64"]},
  "data": {"kind": "randn", "features": 1, "targets": 1}, "loss": {"kind": "mse"},
  "optimizer": {"kind": "sgd", "lr": 0.1}, "lanes": ["replica"],
  "compute": {"kind": "emulated", "forward_ms": 1, "backward_ms": 2}})";

RunPlan plan() {
  fuzz::MemoryFile file;
  const auto scenario = load_scenario_file(file.holding(kScenario), {});
  fuzz::promised(static_cast<bool>(scenario), "the scenario is right");
  return make_plans(scenario.value()).value().front();
}

bool is_short(const PublishedTable& table) {
  return table.rows.size() <= kMostRows &&
         std::all_of(table.rows.begin(), table.rows.end(),
                     [](const PublishedRow& row) { return row.ranks <= kMostRanks; });
}

void check_fit(const PublishedTable& table) {
  static const RunPlan fitted = plan();
  const auto fit = fit_row(fitted, default_machine_model(), table);
  if (!fit) return fuzz::check_errors(fit.errors());
  for (const PredictedRow& row : fit.value().rows)
    fuzz::promised(row.low <= row.ms && row.ms <= row.high && std::isfinite(row.high),
                   "a predicted step lies in its interval");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file;
  const auto table = read_published_table(file.holding(fuzz::text_of(data, size)));
  if (!table) {
    fuzz::check_errors(table.errors());
    return 0;
  }
  for (const PublishedRow& row : table.value().rows)
    fuzz::promised(row.ranks >= 1 && row.ms > 0 && std::isfinite(row.ms), "a step takes some time");
  if (is_short(table.value()) && fuzz::one_input_in(kFitted, data, size)) check_fit(table.value());
  return 0;
}
