// Assignment of parameters to buckets, at construction and after the first step.
#include "reducer/bucket.h"

#include <benchmark/benchmark.h>

#include <numeric>

namespace lockstep {
namespace {

// Sizes that go up and down, as those of weights and biases do.
std::vector<BucketItem> items_of(int64_t parameters) {
  std::vector<BucketItem> items;
  for (int64_t p = 0; p < parameters; ++p)
    items.push_back({.bytes = p % 2 == 0 ? 4096 * (1 + p * 7919 % 1024) : 4096});
  return items;
}

void at_construction(benchmark::State& state) {
  const auto items = items_of(state.range(0));
  while (state.KeepRunning())
    benchmark::DoNotOptimize(layout_at_construction(items, false, 1 << 20, 25 << 20));
}
BENCHMARK(at_construction)->Arg(24)->Arg(161)->Arg(1000);

void rebuilt(benchmark::State& state) {
  const auto items = items_of(state.range(0));
  std::vector<int64_t> order(items.size());
  std::iota(order.rbegin(), order.rend(), 0);
  while (state.KeepRunning())
    benchmark::DoNotOptimize(rebuilt_layout(items, order, 1 << 20, 25 << 20));
}
BENCHMARK(rebuilt)->Arg(24)->Arg(161)->Arg(1000);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
