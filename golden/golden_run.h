#pragma once

#include <cstddef>
#include <cstdint>

#include "golden/replay_rule.h"
#include "golden/state.h"
#include "golden/stored.h"
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
  invariant,   // virtual shards in the scenario's dtype, added in their tree; whatever the ranks
  exact,       // the whole global batch, in the scenario's dtype
  one_device,  // the same as exact, with its losses: for stored goldens and common checks
};
const char* to_word(GoldenKind kind);

// Bytes that one item of the stream takes. The items of kind replay with `shards` carry, behind the
// state, the local gradients of every rank (W x gradients, each in the place that it has in the
// state, up to the end of the last gradient): they tell which rank's contribution is wrong. Where
// ranks have states of their own (scenarios/scenario.h), items of kind replay hold all of them,
// rank after rank, and no local gradients. Those of kind one_device carry, behind the state, the
// loss of the whole batch as a double: a mean or a sum, without scale. Those of kind invariant
// carry there, in step ReplayRule::exchange_in_step, the bits of the averages (to the end of the
// last gradient) that two shards in exchanged places of the tree would change: the lane's control.
struct GoldenItem {
  StateLayout layout;
  int64_t shard_bytes = 0;  // of one rank's local gradients; 0 without shards
  int64_t bytes = 0;
};
GoldenItem golden_item(const Scenario& scenario, GoldenKind kind, bool shards);

// Blocks until the last step is streamed. `deadline`: for each wait on a slow consumer.
void run_golden(const Scenario& scenario, GoldenKind kind, const ReplayRule& rule, bool shards,
                StateStream& stream, Deadline deadline);

// The weights of one device after the scenario's last step, to be kept in golden/data. float32
// only. What, source, fingerprint and published values are left to the caller.
StoredGolden make_stored_golden(const Scenario& scenario);

}  // namespace lockstep
