// Virtual time: jobs of many ranks, and messages one by one. docs/simulation.md says what is asked.
#include <benchmark/benchmark.h>

#include "sim/des/collective.h"
#include "sim/des/simulate.h"

namespace lockstep {
namespace {

Job job_of(int64_t ranks, int64_t steps, int64_t buckets, bool per_bucket) {
  Job job;
  job.ranks = ranks;
  job.steps = steps;
  job.forward_ns = 100'000'000;
  job.backward_ns = 200'000'000;
  for (int64_t b = 0; b < buckets; ++b)
    job.settled.push_back({b, 4'000'000, job.backward_ns * (b + 1) / buckets, 0});
  job.first_step = job.settled;
  job.noise = {Distribution::normal, 0.02, per_bucket};
  job.cost.algorithm = Algorithm::double_binary_tree;
  job.cost.link = {5000, fs_per_byte_of(25'000), 0};
  return job;
}

void run(benchmark::State& state, const Job& job, Engine engine) {
  for (auto _ : state) benchmark::DoNotOptimize(simulate(job, {engine, 0}).value().steps.back());
  state.SetItemsProcessed(state.iterations() * job.ranks * job.steps);
}

void BM_NoisePerRank(benchmark::State& state) {
  run(state, job_of(state.range(0), 1000, 25, false), Engine::classes);
}
BENCHMARK(BM_NoisePerRank)
    ->Arg(10'000)
    ->Arg(1'000'000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void BM_NoisePerBucket(benchmark::State& state) {
  run(state, job_of(10'000, 1000, 25, true), Engine::classes);
}
BENCHMARK(BM_NoisePerBucket)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_OrderStatistics(benchmark::State& state) {
  run(state, job_of(1'000'000, 1000, 25, false), Engine::order_statistics);
}
BENCHMARK(BM_OrderStatistics)->Unit(benchmark::kMillisecond)->UseRealTime();

// Items: messages that arrived, on one core.
void BM_Events(benchmark::State& state) {
  Job job;
  job.ranks = state.range(0);
  for (int64_t r = 0; r < job.ranks; ++r) job.links.push_back({1000 + r % 7, 1'000'000, 0});
  std::vector<int64_t> starts(static_cast<size_t>(job.ranks));
  for (size_t r = 0; r < starts.size(); ++r) starts[r] = static_cast<int64_t>(r * 7919 % 100'003);
  int64_t messages = 0;
  for (auto _ : state) benchmark::DoNotOptimize(ends_by_events(job, starts, 4'000'000, &messages));
  state.SetItemsProcessed(messages);
}
BENCHMARK(BM_Events)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
