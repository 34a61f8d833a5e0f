#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/layer_times.h"
#include "sim/calibrate/fit.h"
#include "sim/tools/program/sweep_times.h"

namespace lockstep {

// A program as virtual time knows it: a scenario of model sized_layers with a profile of its own
// layer times, and a machine fitted to its own collectives. What is written is what is simulated.

// A run of all ranks, each with its trace.
struct TracedProgram {
  double cap_mb = 0;  // MiB
  std::vector<ProgramTimes> ranks;
};

// Why runs cannot be simulated; empty: they can.
std::string why_not_simulated(const std::vector<TracedProgram>& runs);

struct ProgramModel {
  int64_t world_size = 0;
  std::string command;         // as a shell reads it
  std::string dtype;           // of a scenario
  std::vector<int64_t> sizes;  // elements of each parameter, the last gradient's first
  LayerTimes layers;           // of each
  Fit fit;
};

// Medians over all steps, ranks and runs: when each gradient is there, what a step takes beside
// them, by how much the last rank is late to a bucket, and how long its sum has the wire. `runs`:
// those that why_not_simulated() lets in, not empty. Bad input: buckets that are not made of the
// parameters in the order of their gradients.
Expected<ProgramModel> program_model(const std::vector<const TracedProgram*>& runs,
                                     const std::vector<std::string>& command, int64_t cores);

// The cap of the first bucket, at a cap at which a run was traced or at any other.
int64_t first_bucket_bytes(const std::vector<TracedProgram>& runs, double cap_mb);

inline constexpr const char* kProgramScenario = "scenario.json";
inline constexpr const char* kProgramProfile = "profile.json";
inline constexpr const char* kProgramMachine = "machine.json";

// Writes these three in a folder that is there. Throws std::runtime_error.
void write_program_model(const ProgramModel& model, double cap_mb, int64_t first_bucket,
                         const std::string& folder);

struct CapForecast {
  double cap_mb = 0;                  // MiB
  std::vector<int64_t> bucket_bytes;  // of each bucket of a settled step
  double step_ms = 0;
};
// Of the model that was written in `folder`, in virtual time.
Expected<CapForecast> forecast(const ProgramModel& model, const std::string& folder, double cap_mb,
                               int64_t first_bucket);

}  // namespace lockstep
