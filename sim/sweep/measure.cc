#include "sim/sweep/measure.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>

#include "scenarios/base/clock.h"
#include "scenarios/base/hash.h"
#include "sim/analysis/step_model.h"
#include "sim/sweep/statistics.h"

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

namespace {

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double backward_ms(const Step& step) {
  double sum = 0;
  for (const RankStep& rank : step.ranks)
    for (const PhaseInterval& phase : rank.phases)
      if (phase.phase == Phase::backward || phase.phase == Phase::wait)
        sum += ms(phase.time.length_ns());
  return sum / static_cast<double>(step.ranks.size());
}

template <class Get>
double mean_over_ranks(const StepMetrics& step, Get get) {
  double sum = 0;
  for (const RankNumbers& rank : step.ranks) sum += get(rank);
  return sum / static_cast<double>(step.ranks.size());
}

bool is_sum(const Collective& b) {
  const std::string_view operation = operation_of(b);
  return operation == "all_reduce" || operation == "reduce_scatter" || operation == "all_to_all";
}

// Its gradients were there at some time: the records of other sums have no such event.
bool is_bucket(const Collective& b) { return b.bucket >= 0 && b.ranks.front().ready_ns; }

}  // namespace

std::vector<size_t> gradient_sums(const Timeline& timeline, const Step& step) {
  std::vector<size_t> buckets, sums;
  for (const size_t place : step.collectives) {
    if (is_bucket(timeline.collectives[place])) buckets.push_back(place);
    if (is_sum(timeline.collectives[place])) sums.push_back(place);
  }
  return buckets.empty() ? sums : buckets;
}

std::vector<double> step_times_ms(const RunResult& run, int64_t warmup) {
  std::vector<double> times;
  if (!run.metrics) return times;
  for (const StepMetrics& step : run.metrics->per_step)
    if (step.step > warmup)
      times.push_back(mean_over_ranks(step, [](const RankNumbers& r) { return r.step_ms; }));
  return times;
}

std::optional<RunNumbers> numbers_of(const RunResult& run, int64_t warmup) {
  if (!run.metrics || !run.intervals) return std::nullopt;
  const std::vector<double> steps = step_times_ms(run, warmup);
  std::vector<double> backwards, exposed, skews, overlaps;
  for (const StepMetrics& step : run.metrics->per_step) {
    if (step.step <= warmup) continue;
    exposed.push_back(mean_over_ranks(step, [](const RankNumbers& r) { return r.exposed_ms; }));
    skews.push_back(step.skew_ms);
    double comm_ms = 0, overlapped_ms = 0;
    for (const RankNumbers& rank : step.ranks) {
      comm_ms += rank.comm_ms;
      overlapped_ms += rank.overlapped_ms;
    }
    if (comm_ms > 0) overlaps.push_back(overlapped_ms / comm_ms);
  }
  for (const Step& step : run.intervals->steps)
    if (step.step > warmup) backwards.push_back(backward_ms(step));
  if (steps.empty() || backwards.empty()) return std::nullopt;
  RunNumbers numbers;
  numbers.step_ms = median_of(steps);
  numbers.backward_ms = median_of(backwards);
  numbers.exposed_ms = median_of(exposed);
  numbers.skew_ms = median_of(skews);
  if (!overlaps.empty()) numbers.overlap = median_of(overlaps);
  numbers.steps = static_cast<int64_t>(steps.size());
  numbers.outlier_steps = static_cast<int64_t>(outliers(steps).size());
  for (const size_t place : gradient_sums(*run.intervals, run.intervals->steps.back())) {
    ++numbers.buckets;
    numbers.tail_mb = static_cast<double>(run.intervals->collectives[place].bytes) * 1e-6;
  }
  return numbers;
}

}  // namespace lockstep
