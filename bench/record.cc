// The flight recorder: what an event costs the rank that appends it, alone and with others.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>

#include "sim/record/recorder.h"

namespace lockstep {
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
}  // namespace lockstep

BENCHMARK_MAIN();
