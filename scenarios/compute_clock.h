#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "scenarios/layer_times.h"

namespace lockstep {

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
