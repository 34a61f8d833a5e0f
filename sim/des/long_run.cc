#include "sim/des/long_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "sim/des/cost.h"
#include "sim/des/random.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBucketOfFailures = 1 << 20;  // an address that no noise has
constexpr double kMostFailures = 1e7;

double mtbf_of_any(const LongRun& run) {
  return static_cast<double>(run.mtbf_ns) / static_cast<double>(run.hosts);
}

// Of a stretch that is begun again until no failure falls into it.
double stretch_ns(const LongRun& run, double length_ns) {
  const double mtbf = mtbf_of_any(run);
  return mtbf * std::exp(static_cast<double>(run.restart_ns) / mtbf) * std::expm1(length_ns / mtbf);
}

// One run: its own random numbers, one after the other.
class Trial {
 public:
  Trial(const LongRun& run, int64_t number)
      : run_(run), stream_(run.seed, number, kBucketOfFailures) {
    next_ns_ = drawn();
  }

  struct Times {
    int64_t elapsed_ns = 0, lost_ns = 0, checkpoints_ns = 0, restarts_ns = 0, failures = 0;
  };
  Times run() {
    // A checkpoint after each interval but the one that ends the work.
    int64_t left = run_.work_ns;
    while (left > run_.interval_ns) {
      const int64_t length = run_.interval_ns + run_.checkpoint_ns;
      const int64_t whole = (left - 1) / run_.interval_ns;
      const int64_t done = std::min(whole, (next_ns_ - times_.elapsed_ns) / length);
      times_.elapsed_ns += done * length;
      times_.checkpoints_ns += done * run_.checkpoint_ns;
      left -= done * run_.interval_ns;
      if (done < whole) fail();
    }
    while (next_ns_ - times_.elapsed_ns < left) fail();
    times_.elapsed_ns += left;
    return times_;
  }

 private:
  int64_t drawn() {
    const double ns = -std::log(unit_of(stream_.at(draws_++))) * mtbf_of_any(run_);
    return times_.elapsed_ns + std::max<int64_t>(1, std::llround(std::min(ns, 0x1p61)));
  }

  // At next_ns_, before the stretch under way is done; then restarts until one is whole.
  void fail() {
    times_.lost_ns += next_ns_ - times_.elapsed_ns;
    begin_again();
    while (next_ns_ - times_.elapsed_ns < run_.restart_ns) {
      times_.restarts_ns += next_ns_ - times_.elapsed_ns;
      begin_again();
    }
    times_.elapsed_ns += run_.restart_ns;
    times_.restarts_ns += run_.restart_ns;
  }
  void begin_again() {
    ++times_.failures;
    times_.elapsed_ns = next_ns_;
    next_ns_ = drawn();
  }

  const LongRun& run_;
  const RankStream stream_;
  int64_t draws_ = 0, next_ns_ = 0;
  Times times_;
};

std::vector<Trial::Times> all_trials(const LongRun& run, int64_t runs, int64_t threads) {
  std::vector<Trial::Times> times(static_cast<size_t>(runs));
  const auto work = [&](int64_t first) {
    for (int64_t i = first; i < runs; i += threads)
      times[static_cast<size_t>(i)] = Trial(run, i + 1).run();
  };
  std::vector<std::thread> others;
  for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return times;
}

}  // namespace

InputErrors problems_of(const LongRun& run) {
  InputErrors problems;
  const auto check = [&](const char* name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    InputError problem;
    problem.message = fmt::format("{} is {}", name, value);
    problem.allowed = fmt::format("{} to {}", least, most);
    problems.push_back(problem);
  };
  check("work_ns", run.work_ns, 1, kMostNs);
  check("hosts", run.hosts, 1, kMostRanks);
  check("mtbf_ns", run.mtbf_ns, kSecond, kMostNs);
  check("checkpoint_ns", run.checkpoint_ns, 0, kMostNs);
  check("interval_ns", run.interval_ns, 1, kMostNs);
  check("restart_ns", run.restart_ns, 0, kMostNs);
  if (!problems.empty()) return problems;
  const double expected = expected_ns(run);
  if (expected < static_cast<double>(kMostNs) / 16 && expected / mtbf_of_any(run) < kMostFailures)
    return {};
  InputError problem;
  problem.message = fmt::format(
      "a failure every {:.3g} s on average leaves hardly any work done between two checkpoints",
      mtbf_of_any(run) * 1e-9);
  problem.allowed = "less work, fewer hosts, or shorter intervals, checkpoints and restarts";
  return {problem};
}

int64_t best_interval_ns(const LongRun& run) {
  const double mtbf = mtbf_of_any(run), cost = static_cast<double>(run.checkpoint_ns);
  const double ratio = cost / (2 * mtbf);
  const double best =
      ratio < 1 ? std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost : mtbf;
  const auto work = static_cast<double>(run.work_ns);
  return std::llround(std::clamp(best, std::min<double>(kSecond, work), work));
}

double expected_ns(const LongRun& run) {
  const int64_t whole = (run.work_ns - 1) / run.interval_ns;
  const int64_t last = run.work_ns - whole * run.interval_ns;
  const double stretches =
      whole == 0 ? 0  // and not that many of what may be infinite
                 : static_cast<double>(whole) *
                       stretch_ns(run, static_cast<double>(run.interval_ns + run.checkpoint_ns));
  return stretches + stretch_ns(run, static_cast<double>(last));
}

LongRunNumbers simulate_long_run(const LongRun& run, int64_t runs, int64_t threads) {
  if (threads <= 0) threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  LongRunNumbers numbers;
  numbers.runs = runs;
  const auto n = static_cast<double>(runs);
  double squares = 0;
  for (const Trial::Times& times : all_trials(run, runs, threads)) {
    const auto elapsed = static_cast<double>(times.elapsed_ns);
    numbers.elapsed_ns += elapsed / n;
    squares += elapsed / n * elapsed;
    numbers.lost_ns += static_cast<double>(times.lost_ns) / n;
    numbers.checkpoints_ns += static_cast<double>(times.checkpoints_ns) / n;
    numbers.restarts_ns += static_cast<double>(times.restarts_ns) / n;
    numbers.failures += static_cast<double>(times.failures) / n;
  }
  const double variance = std::max(0.0, squares - numbers.elapsed_ns * numbers.elapsed_ns);
  const double half = 1.959963984540054 * std::sqrt(variance / n);
  numbers.low_ns = numbers.elapsed_ns - half;
  numbers.high_ns = numbers.elapsed_ns + half;
  numbers.goodput = static_cast<double>(run.work_ns) / numbers.elapsed_ns;
  return numbers;
}

int64_t enough_runs(const LongRun& run) {
  const double failures = expected_ns(run) / mtbf_of_any(run);
  return std::llround(std::clamp(2e6 / (failures + 1), 16.0, 2000.0));
}

}  // namespace lockstep
