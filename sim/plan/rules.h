#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "golden/replay_rule.h"
#include "reducer/bucket.h"
#include "scenarios/base/error.h"
#include "scenarios/checkpoint_file.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario.h"
#include "sim/plan/plan.h"

namespace lockstep {

// What the checks of a scenario's parts share: a subject, and where errors go. `allowed` says what
// would be right.
class PartCheck {
 protected:
  PartCheck(const Scenario& scenario, InputErrors* errors) : s_(scenario), errors_(errors) {}

  void fail(std::string pointer, std::string message, std::string allowed) {
    errors_->push_back({"", 0, 0, std::move(pointer), std::move(message), std::move(allowed)});
  }
  void need(bool good, std::string pointer, std::string message, std::string allowed) {
    if (!good) fail(std::move(pointer), std::move(message), std::move(allowed));
  }

  const Scenario& s_;
  InputErrors* errors_;
};

// The pieces of make_plan(). Errors carry pointer, message and allowed; no place.

// What only the whole scenario shows.
void check_scenario(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors);
// Of it: whether every rank gets the samples that split and averaging need.
void check_split(const Scenario& scenario, InputErrors* errors);
// Of it: whether a mutant that acts on samples can act; `pointer` is that of its kind.
void check_sample_mutant(const Scenario& scenario, const MutantSpec& mutant,
                         const std::string& pointer, InputErrors* errors);
// Of it: what mutants of the program around a reducer, and of its calls, can act on.
void check_mutants(const Scenario& scenario, InputErrors* errors);
// Of it: whether a mutant that damages gradients, sums of buckets, shards, broadcasts or a resumed
// optimizer can act, and has the keys of its kind; `pointer` is the mutant's.
void check_data_mutant(const Scenario& scenario, const MutantSpec& mutant,
                       const std::string& pointer, InputErrors* errors);
// Of it: uneven batches, and what ranks without a batch may join in.
void check_join(const Scenario& scenario, InputErrors* errors);
// Of it: what ranks that part for a while (scenarios/scenario.h) cannot go with.
void check_local_steps(const Scenario& scenario, InputErrors* errors);
// Of it: parts that programs register, and keys that no others have.
void check_registered(const Scenario& scenario, InputErrors* errors);
// Of it: options of data kinds that are read from files.
void check_files(const Scenario& scenario, InputErrors* errors);

// Of it: whether the way of sharing out the optimizer, or of training in one process, fits the
// rest.
void check_sharing(const Scenario& scenario, InputErrors* errors);

// Of it: what reducer invariant needs, and what nobody has thought through for virtual shards.
void check_invariant(const Scenario& scenario, InputErrors* errors);

// Of it: reducer fsdp, which virtual time alone knows, and the keys that it alone has.
void check_fsdp(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors);

// Does it give a shard other samples? Of reducer invariant its ranks are virtual shards.
bool is_of_shards(const MutantSpec& mutant);

// Of it: optimizer, schedule, clipping, loss scaling, and the mutants of these.
void check_training(const Scenario& scenario, InputErrors* errors);

// Of it: frozen parameters, and what sparse gradients go together with.
void check_parameters(const Scenario& scenario, InputErrors* errors);

// Of it: what the reducer leaves alone, buffer hooks, and several reducers in one model.
void check_wrapping(const Scenario& scenario, InputErrors* errors);

// Whether model, data and loss fit together.
void check_shapes(const Scenario& scenario, InputErrors* errors);

// Of it: what the checkpoint's settings promise.
void check_checkpoint(const Scenario& scenario, InputErrors* errors);
// The file that a run of kind "resume" goes on from: read and found to belong to this scenario.
// double_step: of the double run's file beside it, where there is one. A run that was killed may
// have left that of an earlier step, or none yet.
std::optional<CheckpointFile> resumed_file(const Scenario& scenario, int64_t* double_step,
                                           InputErrors* errors);

// Of it: addresses and options of faults.
void check_faults(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors);

// Of it: what lives on which devices.
void check_devices(const Scenario& scenario, InputErrors* errors);

// Of it: what emulated compute cannot stand for.
void check_emulated(const Scenario& scenario, InputErrors* errors);

// Multiplies by time_scale what the scenario gives: time-outs, faults, emulated compute. At least
// one millisecond of a time-out is left.
void scale_times(Scenario* scenario);

// Fills in the durations that are 0 and checks their order. A default gives way to what is given.
void complete_timeouts(const Scenario& scenario, Timeouts* timeouts, InputErrors* errors);

// How the reducer averages, as its kind promises.
ReplayRule replay_rule_of(const Scenario& scenario);

// Buckets at construction, in launch order; for kinds without buckets those of their collectives.
BucketLayout first_layout(const Scenario& scenario, const ModelManifest& manifest);

// The kind by whose arithmetic the reducer is judged: a registered one's claim.
const std::string& followed_kind(const Scenario& scenario);
// PowerSGD that never starts within the run is an all-reduce.
bool compresses(const Scenario& scenario);
bool is_power_of_two(double value);

}  // namespace lockstep
