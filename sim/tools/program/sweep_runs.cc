#include "sim/tools/program/sweep_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/base/file.h"
#include "sim/plan/bucket_layout.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kOrderSeed = 1;
constexpr int64_t kAfterFirst = 1;  // a round whose buckets are known
constexpr int64_t kTracedStepsMost = 50;
constexpr int64_t kRepeatsMost = 3;  // of a run beside which the machine did other work

// One world's runs.
class Sweeper {
 public:
  Sweeper(const ProgramSweepPlan& plan, const ProgramLaunch& launch, Signals* signals,
          const std::function<void(std::string)>& say)
      : plan_(plan), launch_(launch), signals_(signals), say_(say), quickest_ms_(quiet_spin_ms()) {
    last_spin_ms_ = quickest_ms_;
    found_.world_size = launch.world;
    for (const double cap : plan.caps) {
      Cell& cell = cells_.emplace_back();
      cell.world_size = launch.world;
      cell.reducer = "ddp";
      cell.cap_mb = cap;
    }
  }

  ProgramSweepWorld measure() {
    buckets_.resize(cells_.size());
    if (round(0)) {
      merge();
      found_.rounds = plan_.rounds.value_or(least_rounds(static_cast<int64_t>(cells_.size()) - 1));
      measure_further();
    }
    if (cells_.size() == 1) found_.rounds = 1;
    found_.lines = cell_results(cells_, runs_, kOrderSeed);
    found_.contrasts = cap_contrasts(found_.lines, kOrderSeed);
    std::vector<Spins> spins;
    for (const SweepRun& run : runs_) spins.push_back(run.spins);
    found_.watch = machine_verdict(spins, quickest_ms_, repeated_);
    if (plan_.predicts && found_.why.empty()) predict();
    return std::move(found_);
  }

 private:
  // Of one cap alone nothing more can be told. Traced rounds are the second and the last.
  void measure_further() {
    if (cells_.size() == 1 || !trace_round(0)) return;
    for (int64_t r = 1; r < found_.rounds; ++r)
      if (!round(r)) return;
    trace_round(1);
  }

  bool round(int64_t number) {
    for (const size_t cell : order_of_round(cells_.size(), number, kOrderSeed))
      if (!measure_once(cell, number, false)) return false;
    return true;
  }

  bool trace_round(int64_t number) {
    if (!plan_.predicts) return true;
    for (const size_t cell : order_of_round(cells_.size(), number, kOrderSeed))
      if (!measure_once(cell, kAfterFirst, true)) return false;
    return true;
  }

  void predict() {
    const std::string folder = fmt::format("{}/{}-predicted", launch_.folder, launch_.world);
    std::error_code error;
    fs::create_directory(folder, error);
    found_.prediction =
        predict_caps(found_.lines, traced_, plan_.start.command, folder, this_machine().cores);
    fs::remove_all(folder, error);
  }

  // The runs of caps that are as others go.
  void merge() {
    std::vector<size_t> kept;
    cells_ = merged_by_buckets(std::move(cells_), buckets_, &kept);
    std::vector<SweepRun> runs;
    std::vector<std::vector<int64_t>> buckets;
    for (size_t i = 0; i < kept.size(); ++i) {
      buckets.push_back(buckets_[kept[i]]);
      for (SweepRun run : runs_)
        if (run.cell == kept[i]) {
          run.cell = i;
          runs.push_back(run);
        }
    }
    runs_ = std::move(runs);
    buckets_ = std::move(buckets);
  }

  // False: the sweep of this world ends here.
  bool measure_once(size_t cell, int64_t round, bool traced) {
    for (int64_t attempt = 0;; ++attempt) {
      say_(fmt::format("{} ranks, {}, {} MiB", launch_.world,
                       traced ? "traced" : fmt::format("round {}", round + 1),
                       *cells_[cell].cap_mb));
      Spins spins{last_spin_ms_, 0};
      auto ranks = run(*cells_[cell].cap_mb, traced);
      if (!ranks) return false;
      spins.after_ms = last_spin_ms_ = settled_spin_ms(quickest_ms_);
      quickest_ms_ = std::min(quickest_ms_, last_spin_ms_);
      // Where half of all is disturbed, repeating does not help.
      const bool hope = repeated_ <= 2 + static_cast<int64_t>(runs_.size()) / 2;
      if (!plan_.allow_busy && hope && attempt < kRepeatsMost &&
          is_contaminated(spins, quickest_ms_)) {
        ++repeated_;
        continue;
      }
      if (!keeps_buckets(cell, round, ranks->front().bucket_bytes)) return false;
      if (traced)
        traced_.push_back({*cells_[cell].cap_mb, std::move(*ranks)});
      else
        runs_.push_back({cell, round, spins, "not_compared", numbers_of(*ranks)});
      return true;
    }
  }

  // False: then caps cannot be told apart by them.
  bool keeps_buckets(size_t cell, int64_t round, const std::vector<int64_t>& buckets) {
    if (round == 0) buckets_[cell] = buckets;
    if (buckets == buckets_[cell]) return true;
    found_.why = fmt::format("with {} MiB the buckets of one run are not those of another",
                             *cells_[cell].cap_mb);
    return false;
  }

  // Nothing: it could not be measured, and it is noted why.
  std::optional<std::vector<ProgramTimes>> run(double cap, bool traced) {
    ProgramLaunch launch = launch_;
    launch.folder += fmt::format("/{}-{}", launch.world, ++count_);
    const int64_t steps = traced ? std::min(plan_.steps, kTracedStepsMost) : plan_.steps;
    launch.variables.push_back(
        fmt::format("LOCKSTEP_PROGRAM_SWEEP={} {} {}", cap, plan_.warmup, steps));
    if (traced) launch.variables.emplace_back("LOCKSTEP_PROGRAM_TRACE=1");
    std::error_code error;
    fs::create_directory(launch.folder, error);
    const ProgramEnd end = run_program(launch, signals_);
    found_.why = end.why;
    found_.log_tail = end.log_tail;
    found_.signal = end.signal;
    std::vector<ProgramTimes> ranks;
    if (end.why.empty()) ranks = read_ranks(launch);
    const std::string advice = gpu_advice_after(launch.folder);
    fs::remove_all(launch.folder, error);
    if (!found_.why.empty()) {
      if (end.signal == 0) found_.why += advice;
      return std::nullopt;
    }
    found_.torch = ranks[0].torch;
    found_.given = ranks[0].given;
    found_.on_cpu = ranks[0].on_cpu;
    return ranks;
  }

  std::vector<ProgramTimes> read_ranks(const ProgramLaunch& launch) {
    std::vector<ProgramTimes> ranks;
    std::error_code error;
    for (int64_t rank = 0; rank < launch.world; ++rank) {
      const std::string path = fmt::format("{}/times-{}.json", launch.folder, rank);
      if (!fs::exists(path, error)) {
        found_.why = fmt::format(
            "rank {} of {} made no DistributedDataParallel and took no optimizer step{}", rank,
            launch.world, agent_advice_after(launch.folder));
        return {};
      }
      auto read = read_program_times(path);
      if (!read)
        found_.why = to_text(read.errors()[0]);
      else if (read.value().rank != rank || read.value().world != launch.world)
        found_.why = other_world(read.value().world, launch.world);
      else
        ranks.push_back(std::move(read.value()));
      if (!found_.why.empty()) return {};
    }
    found_.why = why_not_measured(ranks, plan_.warmup);
    return ranks;
  }

  const ProgramSweepPlan& plan_;
  const ProgramLaunch& launch_;
  Signals* signals_;
  const std::function<void(std::string)>& say_;
  double quickest_ms_, last_spin_ms_ = 0;
  std::vector<Cell> cells_;
  std::vector<std::vector<int64_t>> buckets_;  // by cell
  std::vector<SweepRun> runs_;
  std::vector<TracedProgram> traced_;
  int64_t count_ = 0, repeated_ = 0;
  ProgramSweepWorld found_;
};

}  // namespace

std::vector<Cell> merged_by_buckets(std::vector<Cell> cells,
                                    const std::vector<std::vector<int64_t>>& buckets,
                                    std::vector<size_t>* kept) {
  std::vector<Cell> merged;
  kept->clear();
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto same = std::find_if(kept->begin(), kept->end(),
                                   [&](size_t other) { return buckets[other] == buckets[i]; });
    if (same == kept->end()) {
      kept->push_back(i);
      merged.push_back(std::move(cells[i]));
      continue;
    }
    Cell& known = merged[static_cast<size_t>(same - kept->begin())];
    double other = *cells[i].cap_mb;
    if (other == kDefaultCapMib) {
      std::swap(*known.cap_mb, other);
      *same = i;
    }
    known.same_caps_mb.push_back(other);
    std::sort(known.same_caps_mb.begin(), known.same_caps_mb.end());
  }
  return merged;
}

ProgramSweepWorld sweep_world(const ProgramSweepPlan& plan, const ProgramLaunch& launch,
                              Signals* signals, const std::function<void(std::string)>& say) {
  return Sweeper(plan, launch, signals, say).measure();
}

}  // namespace lockstep
