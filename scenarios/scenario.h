#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/lane.h"
#include "scenarios/base/part.h"
#include "scenarios/base/verdict.h"
#include "scenarios/faults.h"

namespace lockstep {

// Versions between bounds: "<2.4", ">=2.0 <2.4", "1.13" (that one and its 1.13.x). A plain value.
class VersionRange {
 public:
  // Comparisons <, <=, >, >= or = (also nothing) before numbers with dots, all of which must hold,
  // and words such as "+gloo" that the version must have behind its numbers; nothing where `text`
  // is not that.
  static std::optional<VersionRange> parse(const std::string& text);

  // Of `version` only the numbers at its start count: "2.14.1+debian" is 2.14.1. Numbers that a
  // bound leaves out match any: 2.4.1 is neither < 2.4 nor > 2.4.
  bool contains(const std::string& version) const;

 private:
  struct Bound {
    std::string comparison;
    std::vector<int> numbers;
  };
  std::vector<Bound> bounds_;
  std::vector<std::string> tags_;  // "+gloo"
};

// Durations in milliseconds. collective <= construction <= step <= rendezvous <= run
// (docs/failures.md); 0 means "not given": the plan fills it in.
struct Timeouts {
  int64_t collective_ms = 0;
  int64_t construction_ms = 0;
  int64_t step_ms = 0;
  int64_t rendezvous_ms = 0;
  int64_t run_ms = 0;
};

// A defect put in on purpose, in primary and double run, never in a golden run. An address that is
// not given means "all". scenarios/schema.json says what each kind does.
struct MutantSpec {
  std::string kind;
  std::optional<int64_t> rank;
  std::optional<int64_t> step;
  std::optional<int64_t> bucket;
  std::optional<std::string> tensor;
  std::optional<int64_t> element;  // of the tensor, or of a bucket; flat
  std::optional<int64_t> bit;      // of the element, from the lowest
  std::optional<int64_t> other;    // the second rank of kinds that have two
};

// Who must be named as late in a run that completes. class: none | compute | link | periodic |
// stopped | wandering; none: nobody.
struct ExpectedStraggler {
  std::string late_class;
  std::optional<int64_t> rank;
};

// What the author of a scenario says must happen. Absent keys expect nothing.
struct Expectation {
  std::string libtorch;  // versions for which it holds, as VersionRange reads them; empty: all
  std::optional<Verdict> verdict;
  std::vector<std::pair<Lane, LaneVerdict>> lanes;
  std::vector<std::pair<std::string, CheckVerdict>> checks;  // by name
  std::optional<std::string> cause;
  std::optional<int64_t> step;
  std::optional<std::string> tensor;
  std::optional<int64_t> bucket;
  std::optional<RunEnding> outcome;
  std::optional<int64_t> primary_rank;
  std::optional<std::string> kind;  // of failure
  // Of the explanation: the first collective that not all ranks entered, and where the primary
  // rank was then.
  std::optional<int64_t> named_collective, named_bucket;
  std::optional<std::string> named_phase;
  std::optional<ExpectedStraggler> straggler;
  std::optional<int64_t> within_ms;  // from when the fault acted
  std::optional<std::string> issue;  // public number of a defect of LibTorch's own
};

inline constexpr uint64_t kDefaultSeed = 123;  // of scenario files

// One run, with matrix and --set already applied and every default of the schema filled in.
// A plain value: as_json() and take_scenario() are inverse to each other.
struct Scenario {
  std::string name;
  std::string what;
  uint64_t seed = 0;
  int64_t world_size = 1;
  int64_t steps = 1;
  // Samples of one step over all ranks; resolved from batch_size, batch_size_per_rank,
  // samples_per_rank or data.samples. A multiple of world_size.
  int64_t batch_size = 1;
  std::string dtype = "float32";         // float32 | float64 | bfloat16
  std::string device = "cpu";            // cpu | fake | cuda | auto
  std::string golden_device = "same";    // same | cpu: where golden runs compute
  int64_t devices_per_rank = 1;          // over which the model's layers are spread
  std::string streams = "in_order";      // of fake devices: in_order | late
  std::vector<int64_t> device_ids;       // as DDP's, of the rank's devices; empty: not given
  int64_t threads = 1;                   // per rank
  std::string rng = "per_part";          // per_part | global_data_first
  std::string rank_seeds = "different";  // different | equal: do ranks build from their own seed?
  std::string zero_grad = "zero";        // zero | none: what happens to gradients before a forward
  int64_t requantize = 0;                // denominator of the weights' grid after a step; 0: off
  int64_t compare_every = 0;             // steps between comparisons of states; 0: by their size
  // A rank's part of a step comes in this many equal micro-batches.
  int64_t accumulate_steps = 1;
  std::string accumulate_sync = "last";  // last | each: which micro-batches are synchronized
  // Parameters that are not trained: names, or what stands before a dot in them.
  std::vector<std::string> frozen;
  // Parameters and buffers that the reducer leaves alone: the same kind of names.
  std::vector<std::string> ignored;
  // Modules, by what stands before a dot in their parameters' names, with a reducer each; empty:
  // one for the whole model.
  std::vector<std::string> wrapped_modules;
  // mean: gradients of all ranks count alike. sample_weighted: by their number of samples.
  std::string averaging = "mean";
  // Ranks that have no more batches in an epoch shadow the others' collectives, and gradients are
  // divided by "initial_world_size" or "active_ranks"; absent: they call none.
  std::optional<std::string> join_divide_by;
  Part model, data, split, loss, optimizer, reducer, communicator;
  // kind "none": off.
  Part optimizer_sharding{"none", {}};
  Part lr_schedule{"none", {}}, clipping{"none", {}}, loss_scaling{"none", {}};
  Part comm_hook{"none", {}}, model_averaging{"none", {}}, checkpoint{"none", {}};
  Part compute{"real", {}};
  std::vector<MutantSpec> mutants;
  std::vector<Fault> faults;
  double time_scale = 1;  // of time-outs that are given, of faults, of emulated compute
  Timeouts timeouts;
  std::vector<Lane> lanes;
  bool common_checks = false;  // note what the checks that are common today would have found
  // The first whose `libtorch` holds counts: see expectation_for(). The last one holds for all.
  std::vector<Expectation> expect = {{}};
  std::optional<std::string> golden;  // path of a stored golden, absolute
};

// Ranks that train, each with records of its own: as many as there are shards, but of reducer
// data_parallel, where one process trains on all.
int64_t ranks_of(const Scenario& scenario);
// Does the scenario say how much its comm hook may lose? Then lane communication holds it to that.
bool states_bound(const Scenario& scenario);
// Into how many shards a step's batch is cut, whose gradients are averaged: one a rank, but of
// reducer invariant, whose virtual shards do not depend on the number of ranks.
bool has_virtual_shards(const Scenario& scenario);
int64_t shards_of(const Scenario& scenario);
// The same training with a rank for each of them: how samples are dealt to virtual shards.
Scenario with_rank_per_shard(Scenario scenario);
// Does a rank hold only a part of the optimizer's state?
bool shares_optimizer(const Scenario& scenario);
// By its name (scenarios/base/text.h).
bool is_frozen(const Scenario& scenario, const std::string& parameter);
bool is_ignored(const Scenario& scenario, const std::string& tensor);  // parameter or buffer

// A part of a document that has passed the schema: what stands under "options" becomes the part's
// own (scenarios/base/part.h).
Part part_from(const nlohmann::ordered_json& json);
Fault fault_from(const nlohmann::ordered_json& json);  // the same of a fault
nlohmann::ordered_json as_json(const Scenario& scenario);
// The inverse. The document may be anybody's; throws nlohmann::json::exception.
Scenario take_scenario(const nlohmann::ordered_json& document);
// Of a document that matches the schema, with defaults: what it does not give (steps where there
// are epochs) is as in Scenario{}, and so is `expect`, of which scenarios/parse selects what can
// hold.
Scenario scenario_as_written(const nlohmann::ordered_json& document);
Expectation expectation_from(const nlohmann::ordered_json& json);  // one that matches the schema

// Threads that prepare a rank's batches (data.workers); 0: none.
inline int64_t loader_workers(const Part& data) {
  return data.options.has("workers") ? data.options.integer("workers") : 0;
}

// In how many steps' distance losses are reported (loss.report_every); 0: never.
inline int64_t report_every(const Part& loss) {
  return loss.options.has("report_every") ? loss.options.integer("report_every") : 0;
}

// Ranks of one node (split.ranks_per_node); 0: not given.
inline int64_t ranks_per_node(const Part& split) {
  return split.options.has("ranks_per_node") ? split.options.integer("ranks_per_node") : 0;
}

// Is the model's last layer registered first (model.register)?
inline bool registers_backwards(const Options& model) {
  return model.has("register") && model.text("register") == "backwards";
}

// The part of activations that a model's dropout makes zero (model.dropout); 0: none.
inline double dropout_of(const Options& model) {
  return model.has("dropout") ? model.number("dropout") : 0;
}

// Training in which ranks part for a while: comm hook post_local_sgd lets each keep its gradients,
// model_averaging brings their parameters together. Steps count from 1.

// Are gradients averaged over ranks in this step?
bool averages_gradients(const Scenario& scenario, int64_t step);
// Are parameters averaged over ranks after this step's update?
bool averages_parameters(const Scenario& scenario, int64_t step);
// May ranks have different states in some step, or rounding of averaged parameters?
bool has_own_states(const Scenario& scenario);

// A rank r with n devices has those from r x n to r x n + n - 1. The layers of its model lie on
// them one after the other, in equal shares: layer i of L (from 0) on device i x n / L of the rank.

// Which of its rank's devices holds a parameter ("fc2.weight"), from 0. Of models that the plan
// lets live on several; of others 0.
int64_t device_of(const Scenario& scenario, const std::string& parameter);

}  // namespace lockstep
