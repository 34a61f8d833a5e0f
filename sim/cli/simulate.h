#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/command_line_names.h"
#include "sim/cli/verbs.h"
#include "sim/des/job.h"

namespace lockstep {

// Scenarios in virtual time.
struct SimulateVerb {
  Selection selection;
  std::string machine;  // file of `lockstep calibrate`, or a preset's word; empty: the default
  // Over what the machine says.
  std::vector<std::string> collectives;  // files of measured ones, one for each world size
  std::string algorithm, noise;
  std::optional<double> latency_us, bandwidth_mb_per_s, across_latency_us,
      across_bandwidth_mb_per_s, overlap_slowdown, comm_slowdown, forward_ms, backward_ms;
  // Of a run of days: hosts that fail, once so often.
  std::optional<double> mtbf_hours, work_hours, checkpoint_s, checkpoint_every_s, restart_s;
  std::optional<int64_t> ranks_per_host, channels;
  // Over what the scenario says.
  std::optional<int64_t> ranks, steps;
  std::string engine;
  int64_t threads = 0;
  std::string predict;  // "caps=1..100,worlds=2..1024"
  std::string average;  // "8:2,64:16": groups of ranks, each with its period
  std::string json, html, svg, out;
  TraceOptions trace;
  std::string color = "auto";
  bool quiet = false;
};
int simulate_verb(const SimulateVerb& verb);
void add_simulate(CLI::App& app, std::function<int()>* action);

// "8:2,64:16": groups of 8 ranks average their parameters every 2 steps, of 64 every 16.
Expected<std::vector<Averaging>> averaging_of(const std::string& words);

// Axes of --predict: caps in MiB (none: the plan's), numbers of ranks (none: the plan's).
struct PredictAxes {
  std::vector<double> caps_mb;
  std::vector<int64_t> worlds;
};
// "caps=1..100,worlds=2..1024", "caps=1;4;25": a range of caps is every distinct layout of the plan
// in it, a range of worlds each power of two. Bad input: words, order, bounds.
Expected<PredictAxes> predict_axes(const std::string& words, const RunPlan& plan);

}  // namespace lockstep
