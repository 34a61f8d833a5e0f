#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/sweep/measure.h"
#include "sim/tools/program/sweep_trace.h"

namespace lockstep {

// What one rank of a program left of one run of `lockstep sweep -- COMMAND`
// (python/lockstep/agent/sweep.py).
struct ProgramTimes {
  int64_t rank = -1, world = 0;
  std::string torch;                         // "2.11.0+cpu"
  std::vector<std::optional<double>> given;  // MiB, by DistributedDataParallel; nothing: no cap
  int64_t steps = 0;                         // all that it took
  std::vector<int64_t> bucket_bytes;         // of all models, after the warm-up
  std::vector<double> step_ms;               // after the warm-up
  bool on_cpu = false;                       // CUDA was asked for, and was the CPU
  std::optional<ProgramTrace> trace;         // of a run that was traced
};

// The bytes are a stranger's: bounded, every type checked.
Expected<ProgramTimes> read_program_times(const std::string& path);

// Why nothing can be measured of these ranks, one of each; empty: it can. A program without
// DistributedDataParallel, with too few steps, or with other numbers of them per rank.
std::string why_not_measured(const std::vector<ProgramTimes>& ranks, int64_t warmup);

// Of ranks that can be measured: only what a program shows, step_ms and buckets. A step's number is
// the mean of its ranks'.
RunNumbers numbers_of(const std::vector<ProgramTimes>& ranks);

}  // namespace lockstep
