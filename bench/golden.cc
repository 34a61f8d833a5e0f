// What verification costs a step: hashing states, and replaying an order of addition.
#include <benchmark/benchmark.h>

#include "golden/reduction_order.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

void hash(benchmark::State& state) {
  const std::vector<char> bytes(static_cast<size_t>(state.range(0)), 1);
  uint64_t chain = 0;
  while (state.KeepRunning())
    benchmark::DoNotOptimize(chain = hash64(bytes.data(), bytes.size(), chain));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(hash)->Arg(64)->Arg(64 << 10)->Arg(16 << 20);

// Of as many elements as a bucket of DDP's first cap has.
void replay(benchmark::State& state, const char* algorithm) {
  constexpr int64_t kElements = 1 << 18;
  const auto ranks = static_cast<size_t>(state.range(0));
  const std::vector<std::vector<float>> own(ranks, std::vector<float>(kElements, 1.5F));
  std::vector<const float*> inputs;
  for (const std::vector<float>& values : own) inputs.push_back(values.data());
  std::vector<float> sum(kElements);
  while (state.KeepRunning()) {
    sum_in_order(algorithm, inputs, kElements, sum.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * kElements *
                          static_cast<int64_t>(sizeof(float)));
}
BENCHMARK_CAPTURE(replay, ring, "ring")->Arg(2)->Arg(7);
BENCHMARK_CAPTURE(replay, bcube, "bcube")->Arg(7);
BENCHMARK_CAPTURE(replay, halving_doubling, "halving_doubling")->Arg(7);
BENCHMARK_CAPTURE(replay, rank_order, "rank_order")->Arg(7);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
