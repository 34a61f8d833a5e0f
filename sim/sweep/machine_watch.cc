#include "sim/sweep/machine_watch.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "scenarios/base/clock.h"
#include "scenarios/base/hash.h"
#include "sim/judge/what_if.h"

namespace lockstep {
namespace {

constexpr int64_t kRounds = 500'000;  // of a chained hash of 8 bytes, some 8 ns each

double work_ms() {
  const int64_t begin_ns = now_ns();
  uint64_t chain = 1;
  for (int64_t i = 0; i < kRounds; ++i) chain = hash64(&chain, sizeof chain, chain);
  static std::atomic<uint64_t> sink;  // so that no compiler leaves the work out
  sink.store(chain, std::memory_order_relaxed);
  return static_cast<double>(now_ns() - begin_ns) * 1e-6;
}

size_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

double spin_ms() {
  const int64_t begin_ns = now_ns();
  std::vector<std::jthread> others;
  for (size_t i = 1; i < usable_cores(); ++i) others.emplace_back([] { work_ms(); });
  work_ms();
  others.clear();  // joins
  return static_cast<double>(now_ns() - begin_ns) * 1e-6;
}

double quiet_spin_ms() {
  constexpr int kTimes = 15;
  double least = spin_ms();
  for (int i = 1; i < kTimes; ++i) least = std::min(least, spin_ms());
  return least;
}

double settled_spin_ms(double quickest_ms, const std::function<double()>& spin) {
  constexpr int kTimes = 5;
  double least = spin();
  for (int i = 1; i < kTimes && least > kBusy * quickest_ms; ++i) least = std::min(least, spin());
  return least;
}

bool is_contaminated(const Spins& spins, double quickest_ms) {
  return std::max(spins.before_ms, spins.after_ms) > kBusy * quickest_ms;
}

MachineVerdict machine_verdict(const std::vector<Spins>& runs, double quickest_ms,
                               int64_t repeated) {
  MachineVerdict verdict;
  verdict.runs = static_cast<int64_t>(runs.size());
  verdict.repeated = repeated;
  if (runs.empty()) return verdict;
  std::vector<double> all;
  for (const Spins& spins : runs) all.insert(all.end(), {spins.before_ms, spins.after_ms});
  verdict.quickest_ms = quickest_ms;
  verdict.median_ms = median_of(all);
  for (const Spins& spins : runs)
    verdict.contaminated += is_contaminated(spins, verdict.quickest_ms);
  const double share =
      static_cast<double>(verdict.contaminated) / static_cast<double>(verdict.runs);
  verdict.verdict = share > 0.5 ? "busy" : share > 0.1 ? "disturbed" : "quiet";
  return verdict;
}

}  // namespace lockstep
