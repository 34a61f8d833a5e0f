#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "golden/reduction_order.h"
#include "reducer/bucket.h"
#include "scenarios/base/hash.h"
#include "sim/judge/judge.h"
#include "sim/plan/plan.h"
#include "sim/record/recorder.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {

// Assignment of parameters to buckets, at construction and after the first step.
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

// The flight recorder: what an event costs the rank that appends it, alone and with others.
namespace {

constexpr uint64_t kCapacity = 1 << 16;

std::string path_of_records() {
  return (std::filesystem::temp_directory_path() /
          ("lockstep-bench-" + std::to_string(::getpid()) + ".records"))
      .string();
}

std::unique_ptr<Recorder> recorder;

void open_recorder(const benchmark::State&) {
  recorder = Recorder::create(path_of_records(), 0, 1, kCapacity);
}

void close_recorder(const benchmark::State&) {
  recorder.reset();
  std::filesystem::remove(path_of_records());
}

void append(benchmark::State& state) {
  while (state.KeepRunning()) recorder->append(EventKind::parameter_ready, 7);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(append)->Setup(open_recorder)->Teardown(close_recorder)->ThreadRange(1, 2);

void read_all(benchmark::State& state) {
  for (uint64_t i = 0; i < kCapacity; ++i) recorder->append(EventKind::parameter_ready, 7);
  while (state.KeepRunning()) {
    RankRecords records;
    std::string why;
    if (!read_records(path_of_records(), &records, &why)) state.SkipWithError(why.c_str());
    benchmark::DoNotOptimize(records);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kCapacity));
}
BENCHMARK(read_all)->Setup(open_recorder)->Teardown(close_recorder);

}  // namespace

// From a scenario file to plans: reading and checking it, and making every choice.
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

// The judge, on records of runs that never were: with the verdict alone, and with metrics.
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

// What verification costs a step: hashing states, and replaying an order of addition.
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
