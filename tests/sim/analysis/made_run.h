#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// Records of a run that never was: a small simulator, apart from the judge's own, of ranks that
// compute for drawn times and meet in the collectives of their buckets.
struct MadeRun {
  int64_t world_size = 4, steps = 20;
  int buckets = 3;
  double load_ms = 1, forward_ms = 10, backward_ms = 20, transfer_ms = 2, optimizer_ms = 1;
  double jitter = 0;    // coefficient of variation of every phase
  double apart_ms = 0;  // ranks begin a step up to this much apart
  bool launched = false;
  uint64_t seed = 1;
  // How many times as long, and how much longer, this phase of that rank and step takes.
  struct Slower {
    double times = 1, more_ms = 0;
  };
  std::function<Slower(int64_t rank, int64_t step, Phase phase)> slower;
  // For how much longer that phase takes because its thread had no core; `unnoticed`: not at all,
  // since it would have slept anyway.
  std::function<double(int64_t rank, int64_t step, Phase phase)> core_wait_ms;
  bool unnoticed = false;
  // How long a collective of that rank waits in its queue for the wire.
  std::function<double(int64_t rank, int64_t step)> delay_ms;

  RunOutcome make() const;
};

class MadeRunWriter {
 public:
  explicit MadeRunWriter(const MadeRun& run) : run_(run), random_(run.seed) {
    outcome_.plan.scenario.world_size = run.world_size;
    outcome_.plan.scenario.steps = run.steps;
    for (int64_t rank = 0; rank < run.world_size; ++rank) {
      RankRecords records;
      records.rank = static_cast<int32_t>(rank);
      outcome_.ranks.push_back(records);
    }
    now_.resize(static_cast<size_t>(run.world_size), 1'000'000'000.0);
    core_wait_.resize(static_cast<size_t>(run.world_size), 0);
  }

  RunOutcome write() {
    for (int64_t step = 1; step <= run_.steps; ++step) write_step(step);
    return std::move(outcome_);
  }

 private:
  double drawn(double ms) {
    if (ms <= 0 || run_.jitter <= 0) return std::max(0.0, ms) * 1e6;
    std::normal_distribution<double> normal(ms, ms * run_.jitter);
    return std::max(0.0, normal(random_)) * 1e6;
  }
  double phase_ns(size_t rank, int64_t step, Phase phase, double ms) {
    const auto slower =
        run_.slower ? run_.slower(static_cast<int64_t>(rank), step, phase) : MadeRun::Slower{};
    const double starved =
        run_.core_wait_ms ? run_.core_wait_ms(static_cast<int64_t>(rank), step, phase) * 1e6 : 0;
    core_wait_[rank] += starved;
    return drawn(ms) * slower.times + slower.more_ms * 1e6 + (run_.unnoticed ? 0 : starved);
  }
  void event(size_t rank, int64_t step, double time_ns, uint16_t kind, Phase phase,
             int32_t subject = -1, uint64_t value = 0, uint32_t sequence = 0) {
    outcome_.ranks[rank].events.push_back({std::llround(time_ns), sequence, kind,
                                           static_cast<uint16_t>(phase), static_cast<int32_t>(step),
                                           subject, value});
  }
  void begin(size_t rank, int64_t step, Phase phase) {
    event(rank, step, now_[rank], static_cast<uint16_t>(EventKind::phase_begin), phase, -1,
          static_cast<uint64_t>(core_wait_[rank]));
  }

  void write_step(int64_t step) {
    const size_t ranks = now_.size();
    std::uniform_real_distribution<double> apart(0, run_.apart_ms * 1e6);
    std::vector<std::vector<double>> arrivals(ranks);
    for (size_t r = 0; r < ranks; ++r) {
      now_[r] += apart(random_);
      for (const auto& [phase, ms] :
           {std::pair(Phase::load, run_.load_ms), std::pair(Phase::forward, run_.forward_ms)}) {
        begin(r, step, phase);
        now_[r] += phase_ns(r, step, phase, ms);
      }
      begin(r, step, Phase::backward);
      const double whole = phase_ns(r, step, Phase::backward, run_.backward_ms);
      for (int b = 0; b < run_.buckets; ++b)
        arrivals[r].push_back(now_[r] + whole * (b + 1) / (run_.buckets + 0.5));
      now_[r] += whole;
      for (int b = 0; b < run_.buckets; ++b) arrive(r, step, b, arrivals[r][b]);
      begin(r, step, Phase::wait);
    }
    std::vector<double> queue(ranks, 0);
    for (int b = 0; b < run_.buckets; ++b) transfer(step, b, arrivals, &queue);
    for (size_t r = 0; r < ranks; ++r) {
      now_[r] = std::max(now_[r], queue[r]);
      begin(r, step, Phase::optimizer);
      now_[r] += phase_ns(r, step, Phase::optimizer, run_.optimizer_ms);
      event(r, step, now_[r], static_cast<uint16_t>(EventKind::step_end), Phase::optimizer, -1,
            static_cast<uint64_t>(core_wait_[r]));
    }
  }

  uint32_t sequence(int64_t step, int b) const {
    return static_cast<uint32_t>((step - 1) * run_.buckets + b + 1);
  }
  void arrive(size_t rank, int64_t step, int b, double time_ns) {
    event(rank, step, time_ns - 1000, static_cast<uint16_t>(EventKind::bucket_ready),
          Phase::backward, b);
    event(rank, step, time_ns, static_cast<uint16_t>(EventKind::arrival), Phase::backward, b,
          pack_collective(1, 6, 1'000'000), sequence(step, b));
  }
  void transfer(int64_t step, int b, const std::vector<std::vector<double>>& arrivals,
                std::vector<double>* queue) {
    double started = 0;
    for (size_t r = 0; r < now_.size(); ++r) {
      const double delay = run_.delay_ms ? run_.delay_ms(static_cast<int64_t>(r), step) * 1e6 : 0;
      const double start = std::max(arrivals[r][b], (*queue)[r]) + delay;
      if (run_.launched)
        event(r, step, start, static_cast<uint16_t>(EventKind::launched), Phase::backward, b, 0,
              sequence(step, b));
      started = std::max(started, start);
    }
    for (size_t r = 0; r < now_.size(); ++r) {
      (*queue)[r] = started + drawn(run_.transfer_ms);
      event(r, step, (*queue)[r], static_cast<uint16_t>(EventKind::end), Phase::wait, b, 0,
            sequence(step, b));
    }
  }

  const MadeRun& run_;
  std::mt19937_64 random_;
  RunOutcome outcome_;
  std::vector<double> now_, core_wait_;
};

inline RunOutcome MadeRun::make() const { return MadeRunWriter(*this).write(); }

}  // namespace lockstep
