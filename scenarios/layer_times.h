#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/manifest.h"
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

// Of a shipped model in a scenario with compute "emulated". Shares are those of the profile (a
// LayerProfile, or a trace of torch.profiler: scenarios/traced_layers.h), or of the layers' work: a
// multiply-accumulate counts as much as a number that a norm or an embedding writes. Totals are
// forward_ms and backward_ms; not given, backward takes twice the forward, and with a profile what
// it says, for planned_samples(). Bad input: the profile.
Expected<LayerTimes> layer_times(const Scenario& scenario);

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

// Where a ComputeClock gets its time: CLOCK_MONOTONIC, or a test's own. A sleep may end late.
struct TimeSource {
  std::function<int64_t()> now_ns;
  std::function<void(int64_t)> sleep_until_ns;
};
TimeSource monotonic_time();

// The timer behind the emulated layers of one rank: as on an accelerator, a layer begins when the
// one before is done, and no core is busy meanwhile. Times are absolute from the begin of a pass
// (CLOCK_MONOTONIC), so that what the rank itself takes for a layer does not add up.
//
// A rank that does not come to its layers in time for kHaltedMs or more was stopped, or waited for
// another: its accelerator has run dry, and all that is left of the pass comes later by as much.
// Waits are cut into slices, so that a halt within a long layer is noticed too.
//
// One thread, that of the rank, for which it sets the timer slack to 1 ns. LibTorch-free.
class ComputeClock {
 public:
  static constexpr int64_t kHaltedMs = 10, kSliceMs = 2;

  // planned_samples: those for which the times hold. A pass over more takes longer, over fewer
  // shorter, in proportion.
  ComputeClock(LayerTimes times, double planned_samples, TimeSource time = monotonic_time());

  // For faults. Passes that begin from now on take `factor` times as long.
  void set_factor(double factor) { factor_ = factor; }
  // For faults. Backward comes to this layer so much later, from now on, whatever the factor; 0:
  // as planned. `layer`: its name, or one of its parameters'. Aborts where there is none.
  void set_pause_before_layer(const std::string& layer, double ms);

  // A pass begins now; a backward is over the samples of the forward before it.
  void begin_forward(int64_t samples);
  void begin_backward();
  // Blocks until this layer (its place in the times) is done, at once if it should be already.
  void wait_forward(size_t layer);
  void wait_backward(size_t layer);

 private:
  void begin();
  void wait_for(double ms);
  int64_t due_ns() const;
  void note_halt(int64_t due_ns);

  const LayerTimes times_;
  const TimeSource time_;
  const double planned_samples_;
  std::vector<double> pauses_ms_;  // before the backward of each layer
  double factor_ = 1;
  double share_ = 1;       // samples of the pass to the planned ones
  double pass_scale_ = 1;  // of all times of the pass
  double done_ms_ = 0;     // what the layers of the pass so far take together
  int64_t begin_ns_ = 0;   // of the pass, later by what it was halted
};

}  // namespace lockstep
