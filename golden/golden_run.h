#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "golden/replay_rule.h"
#include "golden/state.h"
#include "golden/stream.h"
#include "scenarios/base/clock.h"
#include "scenarios/scenario.h"

namespace lockstep {

// A golden run: one process (or thread) on one device that trains the scenario without any
// communicator or reducer and streams its state: item 0 before the first step (gradients absent),
// item s after step s. Throws std::runtime_error when the stream's other side is gone.
enum class GoldenKind {
  replay,      // W shards in the scenario's dtype, averaged by the ReplayRule
  float64,     // the whole global batch, in float64
  exact,       // the whole global batch, in the scenario's dtype
  one_device,  // the same as exact, with its losses: for stored goldens and common checks
};
const char* to_word(GoldenKind kind);

// Bytes that one item of the stream takes. The items of kind replay with `shards` carry, behind the
// state, the local gradients of every rank (W x gradients, each in the place that it has in the
// state, up to the end of the last gradient): they tell which rank's contribution is wrong. Where
// ranks have states of their own (scenarios/local_steps.h), items of kind replay hold all of them,
// rank after rank, and no local gradients. Those of kind one_device carry, behind the state, the
// loss of the whole batch as a double: a mean or a sum, without scale.
struct GoldenItem {
  StateLayout layout;
  int64_t shard_bytes = 0;  // of one rank's local gradients; 0 without shards
  int64_t bytes = 0;
};
GoldenItem golden_item(const Scenario& scenario, GoldenKind kind, bool shards);

// Blocks until the last step is streamed. `deadline`: for each wait on a slow consumer.
void run_golden(const Scenario& scenario, GoldenKind kind, const ReplayRule& rule, bool shards,
                StateStream& stream, Deadline deadline);

// Lane rounding (NUMERICS.md): how far the run's averaged gradients of one step are from those of
// the whole batch in float64 at the same weights, relative to correct runs' distance.
struct RoundingStep {
  double r = 0;          // worst ratio over tensors and norms
  double control_r = 0;  // the same for a damaged copy of the run's gradients: the highest mantissa
                         // bit flipped in the largest element of the first gradient
  int64_t entry = -1;    // tensor of the worst ratio
};
inline constexpr double kRoundingThreshold = 8;
inline constexpr int64_t kRoundingNullDraws = 19;

// Item s-1 (s from 1) of the lane's stream: the state before step s (its weights are used), then
// the state after step s (its gradients are used): 2 x layout.bytes.
GoldenItem rounding_item(const Scenario& scenario);

class RoundingLane {
 public:
  RoundingLane(const Scenario& scenario, const ReplayRule& rule);
  ~RoundingLane();
  RoundingLane(const RoundingLane&) = delete;
  RoundingLane& operator=(const RoundingLane&) = delete;

  // before, after: states of rank 0, in the layout of rounding_item. The same for the same
  // arguments and scenario seed. Takes kRoundingNullDraws x world_size forward and backward passes.
  RoundingStep judge(int64_t step, const std::byte* before, const std::byte* after);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Consumer 0 of `stream`. Calls report(step, result) after each step; blocks until the last, or
// until the stream ends or the deadline (of each wait) has passed.
template <class Report>
void run_rounding(const Scenario& scenario, const ReplayRule& rule, StateStream& stream,
                  Deadline deadline, Report&& report) {
  const int64_t state_bytes = rounding_item(scenario).layout.bytes;
  RoundingLane lane(scenario, rule);
  for (int64_t step = 1; step <= scenario.steps; ++step) {
    const std::byte* item = stream.begin_read(0, step - 1, deadline);
    if (item == nullptr) return;
    report(step, lane.judge(step, item, item + state_bytes));
    stream.end_read(0);
  }
}

}  // namespace lockstep
