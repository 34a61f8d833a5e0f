#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"

namespace lockstep {

// Measured times of a model's layers: the file that `lockstep profile` writes
// (scenarios/profile_schema.json).
struct LayerProfile {
  std::string model;  // as JSON: Scenario::model with every option
  std::string dtype;
  int64_t samples = 1;          // of the forward that was measured
  std::vector<int64_t> sample;  // shape of one
  int64_t repetitions = 1;
  std::string cpu, libraries;
  LayerTimes layers;  // without ready_ms
};

// The model of a scenario, as a profile names it.
std::string profiled_model(const Scenario& scenario);

std::string to_text(const LayerProfile& profile);  // JSON, a line for each layer

// Bad input, at the place in the file: missing, no JSON, not of the schema.
Expected<LayerProfile> read_profile(const std::string& path);
Expected<LayerProfile> profile_from(const std::string& text, const std::string& path);

// Empty, or why the profile is none of this scenario's model.
std::string problem_with(const LayerProfile& profile, const Scenario& scenario,
                         const ModelManifest& manifest);

}  // namespace lockstep
