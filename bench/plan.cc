// From a scenario file to plans: reading and checking it, and making every choice.
#include "sim/plan/plan.h"

#include <benchmark/benchmark.h>

namespace lockstep {
namespace {

constexpr const char* kOneRun = LOCKSTEP_SOURCE_DIR "/scenarios/equivalence/toy_model.json";
constexpr const char* kMatrix = LOCKSTEP_SOURCE_DIR "/scenarios/equivalence/mlp_matrix.json";

void load(benchmark::State& state, const char* path) {
  while (state.KeepRunning()) {
    const auto file = load_scenario_file(path, {});
    if (!file) state.SkipWithError("the scenario cannot be read");
    benchmark::DoNotOptimize(file);
  }
}
BENCHMARK_CAPTURE(load, one_run, kOneRun);
BENCHMARK_CAPTURE(load, matrix, kMatrix);

void plan(benchmark::State& state, const char* path) {
  const auto file = load_scenario_file(path, {});
  size_t plans = 0;
  while (state.KeepRunning()) plans += make_plans(file.value()).value().size();
  state.SetItemsProcessed(static_cast<int64_t>(plans));
}
BENCHMARK_CAPTURE(plan, one_run, kOneRun);
BENCHMARK_CAPTURE(plan, matrix, kMatrix);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
