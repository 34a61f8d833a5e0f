#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/cost.h"
#include "sim/des/job.h"

namespace lockstep {

// How far steps that were simulated on a machine are from measured ones: half of a 95 % interval,
// as a part of the step (sim/calibrate/accuracy.h).
struct Accuracy {
  double step_error = 0;            // of a step time
  std::optional<double> cap_error;  // of the ratio of two that differ in their cap alone
  int64_t runs = 0;                 // that were compared
  bool held_out = false;            // each on a machine that was fitted without it
  // Of a step's forward and backward where the scenario says it and the machine does not: of other
  // compute nothing is known. 0: of any.
  double forward_ms = 0, backward_ms = 0;
};

// Another machine that takes as long for what this one was fitted to: how far apart the two are
// elsewhere is how little is known there. What it says stands instead of the machine's.
struct Alternative {
  double compute = 1;                         // so many times as long as on the machine
  double link_slower = 1, across_slower = 1;  // so many times less bandwidth
  double latency = 1, across_latency = 1;     // so many times as long for a message
  double cores_slower = 1;                    // so many times as long for a byte in a core
  int64_t bucket_ns = 0, parameter_ns = 0, sync_ns = 0;
  double rank_spread = 0;
  // sync_ns is that of steps of so many ranks, and may grow with log2 of them, or shrink with the
  // number of a rank's peers where these are fewer. 0: it does not.
  int64_t sync_ranks = 0;
  bool of_hosts = false;                        // of runs over several hosts alone
  std::optional<double> overlap_slowdown = {};  // none: the machine's
  int64_t not_ranks = 0;                        // of runs of any other number of ranks
};

// The machines that a scenario is simulated on: what a collective costs there, and what a step
// costs beside its layers. scenarios/machine_schema.json describes the file.
struct MachineModel {
  // Nothing: what the scenario's communicator does (ring of Gloo, rank_order and so on).
  std::optional<Algorithm> algorithm;
  CostModel cost;  // but for its algorithm
  // All-gathers and reduce-scatters are rings over all ranks, and over all NICs of a host at once,
  // whatever the algorithm of all-reduces: NCCL has no others.
  bool flat_gathers = false;
  int64_t channels = 1;
  double overlap_slowdown = 0, comm_slowdown = 0;  // of compute under communication; and of that
  // What DDP's reducer costs the compute stream in backward: a bucket, a parameter, a byte that is
  // copied into a bucket (where gradients are no views of it).
  int64_t bucket_ns = 0, parameter_ns = 0, copy_fs_per_byte = 0;
  // From a bucket's last gradient to its launch, while backward goes on.
  int64_t launch_ns = 0;
  int64_t load_ns = 0, optimizer_ns = 0;
  // What a step of several ranks takes beside its compute and collectives.
  int64_t sync_ns = 0;
  // Standard deviation of ranks' speed from one to the next, for good, as a part of it: a step
  // waits for the slowest (slowest_of()). No rank is named.
  double rank_spread = 0;
  // Which of them the file says, be it 0: nobody assumes another.
  bool says_bucket = false, says_sync = false, says_spread = false;
  // Of a scenario whose compute is real.
  std::optional<double> forward_ms, backward_ms;
  Noise noise;
  std::vector<std::string> fitted_on;
  std::optional<Accuracy> accuracy;  // none: never compared with runs
  std::vector<Alternative> alternatives = {};
  // Links between hosts are its own, not those of the default machine.
  bool says_across = false;
  // Its file says these beside measured tables.
  bool says_link = false, says_cores = false;
  std::string why_not_compared = {};  // what was changed of a machine whose accuracy was known
};

// What the machine says that counts nowhere where all-reduces go by this algorithm, each with why.
std::vector<std::string> unused_keys(const MachineModel& machine, Algorithm algorithm);

// How many times as long as the average rank's the compute of the slowest of so many takes, where
// they are spread so far: 1 + spread x the expected largest of as many normal draws (Blom, 1958).
double slowest_of(int64_t ranks, double spread);
inline constexpr double kMostRankSpread = 1;

// Of steps of this compute, as it is before noise and faults. None: it was never compared with
// such.
std::optional<Accuracy> accuracy_of(const MachineModel& machine, const Job& job);

// Where nothing is known: ranks on one host that talk over its loopback, as Gloo does (docs/
// simulation.md says what was measured).
MachineModel default_machine_model();

// A machine by its word: nominal rates of what can be bought (docs/simulation.md), to begin with.
std::optional<MachineModel> machine_preset(const std::string& word);
std::string machine_preset_words();  // "loopback, 10gbe, ..."

// Bad input: the file, with place, value and allowed range.
Expected<MachineModel> read_machine_model(const std::string& path);

// What read_machine_model() reads; `fit` (may be null) is kept for whoever looks at the file.
std::string to_text(const MachineModel& machine, const nlohmann::ordered_json& fit);

}  // namespace lockstep
