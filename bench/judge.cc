// The judge, on records of runs that never were: with the verdict alone, and with metrics.
#include <benchmark/benchmark.h>

#include "sim/judge/judge.h"
#include "tests/sim/judge/made_run.h"

namespace lockstep {
namespace {

void judge(benchmark::State& state, bool metrics) {
  MadeRun made;
  made.world_size = state.range(0);
  made.steps = 100;
  made.jitter = 0.05;
  const RunOutcome outcome = made.make();
  int64_t events = 0;
  for (const RankRecords& rank : outcome.ranks) events += std::ssize(rank.events);
  while (state.KeepRunning()) benchmark::DoNotOptimize(judge_run(outcome, {.metrics = metrics}));
  state.SetItemsProcessed(state.iterations() * events);
}
BENCHMARK_CAPTURE(judge, verdict, false)->Arg(4)->Arg(32);
BENCHMARK_CAPTURE(judge, metrics, true)->Arg(4)->Arg(32);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
