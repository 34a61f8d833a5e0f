#pragma once

#include <string>

#include "scenarios/base/error.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Layer times of a scenario's model as a trace of torch.profiler shows them: those of one forward
// and backward over what a rank computes at once, whose samples a trace does not say. A layer's
// backward reaches from the last gradient of the one behind it to its own last; all layers' forward
// is as long as the trace's, by shares of backward. Bad input: no training, or one whose
// parameters, in the reverse order of their gradients, are not the model's; no begin of a forward,
// where the scenario does not say how long it takes.
Expected<LayerTimes> traced_layers(const std::string& path, const Scenario& scenario,
                                   const ModelManifest& manifest);

// The type of a scenario whose elements have as many bytes as those of a trace's gradients.
std::string scenario_dtype(const std::string& traced);

}  // namespace lockstep
