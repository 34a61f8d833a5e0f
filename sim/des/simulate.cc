#include "sim/des/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <thread>

#include "sim/des/collective.h"
#include "sim/des/fronts.h"
#include "sim/des/walk.h"

namespace lockstep {
namespace {

constexpr double kMs = 1e-6;

double quantile(const std::vector<int64_t>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return static_cast<double>(sorted[static_cast<size_t>(std::ceil(q * last))]) * kMs;
}

}  // namespace

SimulatedNumbers numbers_of(const Job& job, const SimulatedRun& run) {
  SimulatedNumbers numbers;
  if (run.steps.empty()) return numbers;
  const size_t first = run.steps.size() > 1 ? 1 : 0;
  std::vector<int64_t> durations;
  double backward = 0, skew = 0;
  bool skew_known = run.engine != Engine::classes || !job.noise.per_bucket;
  for (size_t i = first; i < run.steps.size(); ++i) {
    const StepNumbers& step = run.steps[i];
    durations.push_back(step.duration_ns);
    numbers.exposed_ms += static_cast<double>(step.exposed_ns) * kMs;
    numbers.comm_ms += static_cast<double>(step.comm_ns) * kMs;
    backward += static_cast<double>(step.compute_ns + step.exposed_ns - step.average_ns -
                                    job.passes * job.forward_ns - job.load_ns) *
                kMs;
    skew += static_cast<double>(step.skew_ns) * kMs;
  }
  const auto count = static_cast<double>(durations.size());
  std::sort(durations.begin(), durations.end());
  for (const int64_t ns : durations) numbers.step_ms += static_cast<double>(ns) * kMs;
  numbers.step_ms /= count;
  numbers.p50_ms = quantile(durations, 0.5);
  numbers.p95_ms = quantile(durations, 0.95);
  numbers.p99_ms = quantile(durations, 0.99);
  numbers.longest_ms = static_cast<double>(durations.back()) * kMs;
  numbers.backward_ms = backward / count;
  numbers.exposed_ms /= count;
  numbers.comm_ms /= count;
  if (skew_known) numbers.skew_ms = skew / count;
  if (numbers.comm_ms > 0) numbers.overlap = 1 - numbers.exposed_ms / numbers.comm_ms;
  numbers.total_s = static_cast<double>(run.steps.back().end_ns) * 1e-9;
  numbers.steps = static_cast<int64_t>(durations.size());
  return numbers;
}

Chance wilson(int64_t hits, int64_t of) {
  if (of == 0) return {0, 0, 1};
  constexpr double z = 1.959963984540054;
  const auto n = static_cast<double>(of);
  const double p = static_cast<double>(hits) / n;
  const double middle = p + z * z / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  const double scale = 1 + z * z / n;
  // What is 0 or 1 in numbers without end is not so in doubles.
  return {p, hits == 0 ? 0 : std::max(0.0, (middle - half) / scale),
          hits == of ? 1 : std::min(1.0, (middle + half) / scale)};
}

namespace {

constexpr std::array<const char*, 5> kWords = {"L0", "L1", "L2", "L3", "L4"};
constexpr std::array<const char*, 4> kCauses = {"death", "hang", "lateness", "short_timeout"};

// Steps whose draws are made ahead, all at once on all threads.
constexpr int64_t kAhead = 256;

std::vector<Member> members_of(const Job& job, Engine engine, bool traced) {
  const bool alike = engine == Engine::classes || engine == Engine::order_statistics;
  return alike && !traced ? classes_of(job) : each_rank(job);
}

CollectiveEnds ends_of(Engine engine, int64_t* messages) {
  if (engine == Engine::rounds) return ends_by_rounds;
  if (engine != Engine::events) return ends_by_formula;
  return [messages](const Job& job, const std::vector<int64_t>& starts, int64_t bytes) {
    return has_rounds(job) ? ends_by_events(job, starts, bytes, messages)
                           : ends_by_formula(job, starts, bytes);  // a group of one rank
  };
}

// What is made ahead of some steps, all at once on all threads.
struct StepsAhead {
  std::vector<Draws> draws;                  // by step and pass
  std::vector<std::vector<Member>> members;  // by step, where each has its own
  std::span<const Draws> draws_of_step(const Job& job, int64_t step) const {
    return std::span(draws).subspan(static_cast<size_t>(step * job.passes),
                                    static_cast<size_t>(job.passes));
  }
};

// Each of `count` by one of the threads, this one among them.
template <class Do>
void in_turns(int64_t count, int64_t threads, Do one) {
  const auto turn = [&](int64_t thread) {
    for (int64_t i = thread; i < count; i += threads) one(i);
  };
  std::vector<std::thread> others;
  for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(turn, thread);
  turn(0);
  for (std::thread& other : others) other.join();
}

// Passes are drawn apart from each other, so any thread may draw any of them.
StepsAhead draws_ahead(const Job& job, const std::vector<Member>& members, Engine engine,
                       int64_t first, int64_t count, int64_t threads) {
  StepsAhead ahead;
  ahead.draws.resize(static_cast<size_t>(count * job.passes));
  const int64_t first_pass = (first - 1) * job.passes + 1;
  in_turns(count * job.passes, threads, [&](int64_t i) {
    ahead.draws[static_cast<size_t>(i)] = engine == Engine::order_statistics
                                              ? order_statistics(job, members, first_pass + i)
                                              : draws_of(job, members, first_pass + i);
  });
  return ahead;
}

// Of a job whose members are others in each step.
StepsAhead fronts_ahead(const Job& job, const std::vector<Member>& classes, int64_t first,
                        int64_t count, int64_t threads) {
  StepsAhead ahead;
  ahead.members.resize(static_cast<size_t>(count));
  ahead.draws.resize(static_cast<size_t>(count * job.passes));
  in_turns(count, threads, [&](int64_t i) {
    std::vector<Member>& members = ahead.members[static_cast<size_t>(i)];
    members = front_of(job, classes, first + i);
    for (int64_t pass = 0; pass < job.passes; ++pass)
      ahead.draws[static_cast<size_t>(i * job.passes + pass)] =
          draws_of(job, members, (first + i - 1) * job.passes + pass + 1);
  });
  return ahead;
}

int64_t thread_count(const Job& job, int64_t wanted) {
  if (!job.noise.any() && !has_fronts(job)) return 1;
  if (wanted > 0) return wanted;
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

// So that what is made ahead takes no more than the ranks themselves.
int64_t steps_ahead(const Job& job, size_t members) {
  const auto each = static_cast<int64_t>(members) * job.passes *
                    (job.noise.per_bucket ? static_cast<int64_t>(job.settled.size()) + 1 : 1);
  return std::clamp<int64_t>((job.ranks + 65536) / std::max<int64_t>(each, 1), 1, kAhead);
}

// Of alike ranks engine L3 knows the latest, but not which it is; L4 has none to name.
std::optional<SimulatedFailure> named(const Walk& walk, const Job& job, Engine engine,
                                      bool by_fronts) {
  auto failure = walk.failure();
  if (failure && by_fronts) return walk.failure_by_rank();
  if (!failure || !job.noise.any()) return failure;
  if (engine == Engine::classes) return walk.failure_by_rank();
  if (engine == Engine::order_statistics && failure->cause == EndedBy::lateness &&
      !std::binary_search(job.schedule.touched.begin(), job.schedule.touched.end(), *failure->rank))
    failure->rank.reset();
  return failure;
}

InputError unfit(Engine engine, const std::string& why, Engine instead) {
  return option_error(fmt::format("engine {} is not exact here: {}", to_word(engine), why),
                      fmt::format("{}, or none for the cheapest that is exact", to_word(instead)));
}

}  // namespace

const char* to_word(EndedBy cause) { return kCauses[static_cast<size_t>(cause)]; }

const char* to_word(Engine engine) { return kWords[static_cast<size_t>(engine)]; }

Expected<Engine> engine_of(const std::string& word) {
  for (size_t i = 0; i < kWords.size(); ++i)
    if (word == kWords[i]) return static_cast<Engine>(i);
  return option_error(fmt::format("\"{}\" is no engine", word), "L0, L1, L2, L3 or L4");
}

std::string why_not(const Job& job, Engine engine) {
  if (engine == Engine::events)
    return has_rounds(job) ? "" : "its collective is known by its formula only";
  if (engine == Engine::rounds) return "";
  if (!job.links.empty()) return "ranks have links of their own";
  if (engine == Engine::closed_form) return "";
  if (groups_differ(job)) return "groups average at different times";
  if (has_copies(job) && (job.noise.any() || !job.schedule.touched.empty()))
    return "groups that hold a copy of the parameters are late apart";
  if (is_uneven(job)) return "ranks have different numbers of virtual shards";
  return noise_ends_together(job) ? "" : "ranks leave a step at different times";
}

Engine cheapest_engine(const Job& job) {
  for (const Engine engine : {Engine::classes, Engine::closed_form})
    if (why_not(job, engine).empty()) return engine;
  return Engine::rounds;
}

Expected<SimulatedRun> simulate(const Job& job, const SimulateOptions& options,
                                const TraceSink& sink) {
  if (InputErrors problems = problems_of(job); !problems.empty()) return problems;
  SimulatedRun run;
  run.engine = options.engine.value_or(cheapest_engine(job));
  if (const std::string why = why_not(job, run.engine); !why.empty())
    return unfit(run.engine, why, cheapest_engine(job));
  const bool by_fronts = run.engine == Engine::classes && !sink && has_fronts(job);
  const std::vector<Member> members = members_of(job, run.engine, static_cast<bool>(sink));
  const int64_t threads = thread_count(job, options.threads);
  const int64_t ahead = steps_ahead(job, by_fronts ? 1 : members.size());
  Walk walk(job, members, ends_of(run.engine, &run.messages));
  StepTrace trace;
  for (int64_t first = 1; first <= job.steps && !walk.failure(); first += ahead) {
    const int64_t count = std::min(ahead, job.steps - first + 1);
    const StepsAhead ahead_of = by_fronts
                                    ? fronts_ahead(job, members, first, count, threads)
                                    : draws_ahead(job, members, run.engine, first, count, threads);
    for (int64_t i = 0; i < count; ++i) {
      if (by_fronts) walk.regroup(ahead_of.members[static_cast<size_t>(i)]);
      const StepNumbers numbers =
          walk.step(ahead_of.draws_of_step(job, i), sink ? &trace : nullptr);
      if (sink) sink(trace);
      if (walk.failure()) break;
      run.steps.push_back(numbers);
      if (options.progress) options.progress(first + i, job.steps);
    }
  }
  run.failure = named(walk, job, run.engine, by_fronts);
  return run;
}

}  // namespace lockstep
