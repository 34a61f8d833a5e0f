#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/sweep/result.h"
#include "sim/tools/program/launch.h"
#include "sim/tools/program/start.h"
#include "sim/tools/program/sweep_prediction.h"
#include "sim/tools/program/sweep_times.h"

namespace lockstep {

// Runs somebody's program with one bucket cap after another, as it is but for the cap.

struct ProgramSweepPlan {
  ProgramStart start;
  std::vector<double> caps = {1, 5, 25, 100};  // MiB, ascending
  std::vector<int64_t> worlds = {2};
  int64_t steps = 20, warmup = 5;
  std::optional<int64_t> rounds;  // nothing: as many as it takes to tell the caps apart
  bool allow_busy = false;
  bool predicts = false;    // caps between these, from traced runs
  std::string calibration;  // a folder for what they were simulated by; empty: none
  double limit_s = 120;
};

// What was measured at one world size.
struct ProgramSweepWorld {
  int64_t world_size = 0;
  std::vector<CellResult> lines;
  std::vector<Contrast> contrasts;    // none or one
  std::string why;                    // it could not be measured; the lines are what there was
  std::vector<std::string> log_tail;  // of the process that is the reason
  MachineVerdict watch;
  int64_t rounds = 0;
  std::vector<std::optional<double>> given;     // caps of the script itself
  std::optional<ProgramPrediction> prediction;  // where it was asked for, and caps were measured
  std::string torch;
  bool on_cpu = false;
  int signal = 0;
};

// Places of caps that are measured further, and which others have the same buckets as each: of
// equals DDP's default stays, else the first. `buckets`: of each cell, in bytes.
std::vector<Cell> merged_by_buckets(std::vector<Cell> cells,
                                    const std::vector<std::vector<int64_t>>& buckets,
                                    std::vector<size_t>* kept);

// Blocks. In the first round all caps are measured and their buckets seen; in the others one cap of
// each that have the same buckets. `say` is told of each run before it begins.
ProgramSweepWorld sweep_world(const ProgramSweepPlan& plan, const ProgramLaunch& launch,
                              Signals* signals, const std::function<void(std::string)>& say);

}  // namespace lockstep
