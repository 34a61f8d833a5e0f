#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"

namespace lockstep {

// How long the layers of emulated compute take, LibTorch-free.

// One layer, of a forward and a backward over the samples that the plan gives a rank at once.
struct LayerTime {
  std::string layer;  // LayerSpec::name
  double forward_ms = 0;
  double backward_ms = 0;
  // From the begin of backward until it has done this layer, the last one first: then the gradients
  // of the layer's parameters are there.
  double ready_ms = 0;
  bool operator==(const LayerTime&) const = default;
};
using LayerTimes = std::vector<LayerTime>;  // in the order of forward

// Samples of one forward of a rank, on average: those of a micro-batch.
double planned_samples(const Scenario& scenario);

// Of a shipped model in a scenario with compute "emulated". Shares are those of the profile, or of
// the layers' work: a multiply-accumulate counts as much as a number that a norm or an embedding
// writes. Totals are forward_ms and backward_ms; not given, backward takes twice the forward, and
// with a profile what it says, for planned_samples(). Bad input: the profile.
Expected<LayerTimes> layer_times(const Scenario& scenario);

}  // namespace lockstep
