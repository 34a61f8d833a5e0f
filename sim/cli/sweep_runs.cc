#include "sim/cli/sweep_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "sim/launch/executor.h"
#include "sim/launch/signals.h"

namespace lockstep {
namespace {

// By lane replica, or of a check by lane float64, the only one that is asked for.
std::string replicas_of(const RunResult& result) {
  for (const LaneResult& lane : result.lanes) {
    if (lane.verdict == "pass") return "same";
    if (lane.verdict == "fail") return "differ";
  }
  return "not_compared";
}

std::string why_broken(const RunResult& result) {
  if (result.failure) return result.failure->message;
  for (const std::string& reason : result.check_reasons) return reason;
  return "no step after the warm-up was recorded whole";
}

}  // namespace

class SweepRuns::Interrupts : public Signals {};

SweepRuns::SweepRuns(const Options& options)
    : options_(options),
      interrupts_(std::make_unique<Interrupts>()),
      quickest_ms_(quiet_spin_ms()),
      last_spin_ms_(quickest_ms_) {}

SweepRuns::~SweepRuns() = default;

bool SweepRuns::stopped() {
  if (signal_ == 0) signal_ = interrupts_->next();
  return signal_ != 0 || !broken_.empty();
}

// The spin after a run is the one before the next.
std::optional<SweepRuns::Measured> SweepRuns::run(const RunPlan& plan, const std::string& label) {
  std::optional<RunResult> result;
  Spins spins{last_spin_ms_, 0};
  try {
    signal_ =
        execute({plan}, {.out_dir = options_.out_dir, .worker_program = options_.worker, .jobs = 1},
                [&](size_t, const RunOutcome& outcome) {
                  spins.after_ms = last_spin_ms_ = settled_spin_ms(quickest_ms_);
                  if (!outcome.interrupted)
                    result = judge_run(outcome, {.metrics = true, .intervals = true});
                  return result && result->outcome != "completed";
                });
  } catch (const std::exception& error) {
    broken_.push_back(fmt::format("{}: {}", label, error.what()));
  }
  quickest_ms_ = std::min(quickest_ms_, last_spin_ms_);
  if (signal_ != 0 || !result) return std::nullopt;
  return Measured{std::move(*result), spins};
}

void SweepRuns::measure_once(const std::vector<Cell>& cells, size_t cell, int64_t round,
                             Progress* progress) {
  for (int64_t attempt = 0;; ++attempt) {
    const auto measured = run(cells[cell].plan, label_of(cells[cell]));
    if (!measured) return;
    const auto numbers = numbers_of(measured->result, options_.warmup);
    if (!numbers || measured->result.outcome != "completed") {
      broken_.push_back(fmt::format("{}: {}", label_of(cells[cell]), why_broken(measured->result)));
      return;
    }
    // Where half of all is disturbed, repeating does not help.
    const bool hope = repeated_ <= 2 + static_cast<int64_t>(runs_.size()) / 2;
    const bool again = options_.repeat && hope && attempt < kRepeats &&
                       is_contaminated(measured->spins, quickest_ms_);
    const std::string replicas =
        checked_.contains(cell) ? checked_[cell] : replicas_of(measured->result);
    if (again && replicas != "differ" && !stopped()) {
      ++repeated_;
      continue;
    }
    runs_.push_back({cell, round, measured->spins, replicas, *numbers});
    if (cell == sampled_)
      samples_.push_back(
          samples_of(cells[cell].plan, *measured->result.intervals, label_of(cells[cell])));
    progress->done(measured->result);
    return;
  }
}

void SweepRuns::check(const std::vector<Cell>& cells) {
  for (size_t cell = 0; cell < cells.size() && !stopped(); ++cell) {
    if (!cells[cell].check) continue;
    const auto checked = run(*cells[cell].check, label_of(cells[cell]));
    if (!checked) return;
    checked_[cell] = replicas_of(checked->result);
  }
}

void SweepRuns::measure(const std::vector<Cell>& cells, int64_t rounds, Progress* progress) {
  check(cells);
  for (int64_t round = 0; round < rounds; ++round)
    for (const size_t cell : order_of_round(cells.size(), round, options_.seed)) {
      if (stopped()) return;
      measure_once(cells, cell, round, progress);
    }
}

std::optional<RunResult> SweepRuns::pilot(const Cell& cell) {
  if (stopped()) return std::nullopt;
  auto measured = run(cell.plan, label_of(cell));
  if (!measured) return std::nullopt;
  return std::move(measured->result);
}

MachineVerdict SweepRuns::machine() const {
  std::vector<Spins> spins;
  for (const SweepRun& run : runs_) spins.push_back(run.spins);
  return machine_verdict(spins, quickest_ms_, repeated_);
}

}  // namespace lockstep
