#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/calibrate/fit.h"
#include "sim/cli/verbs.h"
#include "sim/judge/judge.h"
#include "sim/report/terminal.h"
#include "sim/sweep/baseline.h"
#include "sim/sweep/design.h"
#include "sim/sweep/result.h"

namespace lockstep {

// What a sweep measures, of the command line, the scenario's key `sweep`, and defaults.
struct SweepSpec {
  std::optional<std::vector<double>> caps;  // nothing: auto
  std::vector<int64_t> worlds;              // empty: the scenario's
  std::vector<std::string> reducers;        // empty: the scenario's
  // JSON pointer -> values as JSON text.
  std::vector<std::pair<std::string, std::vector<std::string>>> vary;
  int64_t steps = 20, warmup = 5;
  std::optional<int64_t> rounds;  // nothing: as many as it takes to tell the caps apart
  std::string reference;          // path, or empty
};

// All errors at once. The file itself is checked where plans are made of it.
Expected<SweepSpec> sweep_spec(const SweepOptions& options);

// All combinations of the spec with `caps`, each with a plan of its own: errors of the scenario, of
// combinations that cannot be, and of a matrix that is not pinned.
Expected<std::vector<Cell>> sweep_cells(const SweepOptions& options, const SweepSpec& spec,
                                        const std::vector<double>& caps);

// Executes and measures the runs of a sweep, one after the other, each with a spin before and after
// it. SIGINT and SIGTERM end the run under way; nothing is begun after that.
class SweepRuns {
 public:
  struct Options {
    std::string out_dir, worker;
    int64_t warmup = 0;
    uint64_t seed = 0;
    bool repeat = true;  // runs that were disturbed
  };
  // So many times at most.
  static constexpr int64_t kRepeats = 2;

  explicit SweepRuns(const Options& options);
  ~SweepRuns();
  SweepRuns(const SweepRuns&) = delete;
  SweepRuns& operator=(const SweepRuns&) = delete;

  // Measures every cell in every round; `progress` learns of each. Stops early where it was
  // interrupted or a run broke down.
  void measure(const std::vector<Cell>& cells, int64_t rounds, Progress* progress);

  // Keeps what the runs of this cell show of the machine, from now on.
  void sample(size_t cell) { sampled_ = cell; }
  const std::vector<RunSamples>& samples() const { return samples_; }

  // One run that counts for nothing, with its intervals; nothing if it broke down.
  std::optional<RunResult> pilot(const Cell& cell);

  const std::vector<SweepRun>& runs() const { return runs_; }
  const std::vector<std::string>& broken() const { return broken_; }
  MachineVerdict machine() const;
  int signal() const { return signal_; }

 private:
  class Interrupts;
  struct Measured {
    RunResult result;
    Spins spins;
  };
  std::optional<Measured> run(const RunPlan& plan, const std::string& label);
  void check(const std::vector<Cell>& cells);
  void measure_once(const std::vector<Cell>& cells, size_t cell, int64_t round, Progress* progress);
  bool stopped();

  const Options options_;
  std::unique_ptr<Interrupts> interrupts_;
  std::vector<SweepRun> runs_;
  std::map<size_t, std::string> checked_;  // by cell, of those with a check: same | differ
  std::optional<size_t> sampled_;
  std::vector<RunSamples> samples_;
  std::vector<std::string> broken_;
  double quickest_ms_ = 0, last_spin_ms_ = 0;
  int64_t repeated_ = 0;
  int signal_ = 0;
};

}  // namespace lockstep
