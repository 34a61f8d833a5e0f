#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/replay_rule.h"
#include "reducer/bucket.h"
#include "scenarios/base/error.h"
#include "scenarios/layer_times.h"
#include "scenarios/parse/suite.h"
#include "scenarios/scenario.h"

namespace lockstep {

// A scenario with every choice made, for one run. A plain value: the same scenario and seed give
// the same bytes of JSON on every machine. Nothing in it was computed by LibTorch.
struct RunPlan {
  Scenario scenario;
  // Axes of the matrix with the values of this run, for reports: ("/world_size", "3").
  std::vector<std::pair<std::string, std::string>> set;
  std::string file;  // the scenario's path as the user gave it
  ReplayRule replay;
  int64_t start_step = 0;          // steps done in the file that the run resumes from
  int64_t double_start_step = 0;   // the same of the double run's file, which may be behind
  int64_t resumed_world_size = 0;  // ranks that wrote it
  bool threads = false;            // communicator local: ranks are threads of one process
  // Lane float64 of a float32 scenario: a second run in float64 is what is compared. A float64
  // scenario needs none: its primary run is compared.
  bool double_run = false;
  std::vector<std::string> goldens;  // golden runs to start: replay, float64, exact, one_device
  bool rounding = false;
  bool communication = false;
  // Lanes that watch the states of rank 0, in a process of their own.
  bool watches_states() const { return rounding || communication; }
  bool shards = false;          // the replay golden streams local gradients too
  int64_t record_capacity = 0;  // events per rank
  int64_t stream_slots = 2;
  std::vector<std::pair<Lane, std::string>> not_applicable;  // with the reason
  // States are compared after the first step, after each that this divides, and after the last;
  // between them the ranks' gradients, by hashes, unless a measurement is not to be disturbed.
  int64_t compare_every = 1;
  bool hash_between = true;
  // What of the ranks' states is compared where it is not everything after every step; or empty.
  std::string agreement;
  // Of emulated compute; empty where it is real.
  LayerTimes layer_times;
  bool layout_known = false;
  BucketLayout layout_at_construction;
  // Empty, or the control that this run is: "random_data" for lane exact. Such a run is not
  // reported by itself: its lane must fail, or the lane is void for the whole scenario file.
  std::string control;
  // Absolute folder for Export (sim/worker/export.h), empty: none. Not part of what is trained.
  std::string export_dir;
};

// More ranks and steps than the scenario has, which only virtual time is asked for; 0: no more.
struct SimulatedSize {
  int64_t ranks = 0, steps = 0;
  bool only = false;  // nothing of it is executed: what no worker can do is let in
};

// Everything that the plan decides: lanes that cannot apply, replay rule, golden runs, time-outs
// (filled in and ordered), capacities. Bad input: what only the whole scenario shows (a world size
// that does not divide the batch, time-outs out of order, a pair of communicator and algorithm that
// cannot be), with the pointer of the key; place and file are filled in by the caller.
// In virtual time faults may name what only `simulated` has.
Expected<RunPlan> make_plan(const Scenario& scenario, const SimulatedSize& simulated = {});

// Where the value that an error points at came from: the file with line and column, an axis of its
// matrix (`set`: those of the run), or the command line; if it is nowhere (a default), what stands
// above it.
void locate(const ScenarioFile& file, const std::vector<std::pair<std::string, std::string>>& set,
            InputError* error);

// The plans of all combinations of a file, in its order, with `set` and `file`; errors carry their
// places, and each is reported once however many combinations share it.
Expected<std::vector<RunPlan>> make_plans(const ScenarioFile& file,
                                          const SimulatedSize& simulated = {});

// The controls that need a run of their own, at most one per scenario file: for the first
// plan with lane exact, dyadic data and no mutants, the same on random data.
std::vector<RunPlan> control_plans(const std::vector<RunPlan>& plans);

nlohmann::ordered_json as_json(const RunPlan& plan);
// The inverse, of what this program has just written: anything else aborts.
RunPlan plan_from_json(const nlohmann::ordered_json& document);
// The same where the document may be anybody's; throws nlohmann::json::exception.
RunPlan take_plan(const nlohmann::ordered_json& document);
// The plan of a kept run, checked like a scenario: types, words, ranges, indices. Bad input also
// where another version of lockstep left it, or it has more than 65,536 ranks.
Expected<RunPlan> read_foreign_plan(std::string_view text, const std::string& path);
std::string to_text(const RunPlan& plan);  // as_json(), indented, with a final newline

}  // namespace lockstep
