// One all-reduce alone, over Gloo and in shared memory, in one interleaved run:
//   all_reduce [WORLD_SIZE KIB [ROUNDS]]
// prints medians in milliseconds, and the time that plain copying takes for the same bytes.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

constexpr int kWarmUp = 5;

struct Contestant {
  const char* name;
  const char* kind;
  bool allocated;  // by the communicator
};
constexpr Contestant kContestants[] = {
    {"gloo", "gloo", false}, {"shm", "shm", true}, {"shm_copied", "shm", false}};
constexpr size_t kCount = std::size(kContestants);

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One rank. Adds rank 0's times.
void measure(int64_t rank, int64_t ranks, int64_t elements, int rounds,
             const std::shared_ptr<MemoryStore>& store, std::vector<double>* times) {
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<at::Tensor> tensors;
  for (const Contestant& contestant : kContestants) {
    const CommOptions options{rank, ranks, "ring", "127.0.0.1", contestant.name};
    groups.push_back(std::strcmp(contestant.kind, "gloo") == 0
                         ? make_gloo_communicator(options, store, soon())
                         : make_shm_communicator(options, store, soon()));
    tensors.push_back(contestant.allocated ? groups.back()->allocate(elements, at::kFloat)
                                           : at::ones({elements}));
  }
  for (int round = 0; round < rounds + kWarmUp; ++round)
    for (size_t turn = 0; turn < kCount; ++turn) {
      const size_t i = round % 2 == 0 ? turn : kCount - 1 - turn;  // A B B A
      tensors[i].fill_(1);
      groups[1]->barrier(soon())->wait();
      const auto start = Clock::now();
      groups[i]->all_reduce(tensors[i], soon())->wait();
      if (rank == 0 && round >= kWarmUp) times[i].push_back(milliseconds_since(start));
    }
  for (const auto& group : groups) group->close(soon());
}

double copy_ms(int64_t bytes) {
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(from.size());
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    const auto start = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    times.push_back(milliseconds_since(start));
  }
  return median(times);
}

void run(int64_t ranks, int64_t kib, int rounds) {
  auto store = std::make_shared<MemoryStore>();
  const int64_t elements = kib << 8;
  std::vector<double> times[kCount];
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { measure(rank, ranks, elements, rounds, store, times); });
  for (std::thread& thread : threads) thread.join();
  std::printf("all_reduce W=%ld KiB=%ld", ranks, kib);
  const double gloo = median(times[0]);
  for (size_t i = 0; i < kCount; ++i) {
    const double own = median(times[i]);
    std::printf(" %s_ms=%.3f", kContestants[i].name, own);
    if (i > 0) std::printf(" %s/gloo=%.2f", kContestants[i].name, own / gloo);
  }
  std::printf(" copy_ms=%.3f\n", copy_ms(kib << 10));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const auto given = [&](int i) { return argc > i ? std::atoll(argv[i]) : 0; };
  const int rounds = given(3) > 0 ? static_cast<int>(given(3)) : 60;
  if (argc > 2) {
    lockstep::run(given(1), given(2), rounds);
    return 0;
  }
  for (const int64_t ranks : {2, 4})
    for (const int64_t kib : {1 << 10, 25 << 10}) lockstep::run(ranks, kib, rounds);
}
