#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/schema.h"
#include "scenarios/member_schema.h"
#include "scenarios/parse/suite.h"
#include "scenarios/scenario.h"
#include "sim/plan/plans.h"
#include "sim/tools/program/run_faults.h"
#include "sim/tools/program/start.h"

namespace lockstep {

// A scenario file with "program": a training script in place of model, data, loss and so on. What
// `verify|run|sweep -- COMMAND` does with options, the file says with keys.

struct ProgramPart {
  ProgramStart start = {.directory = "."};  // absolute, once read
  bool fresh_processes = false, local_batch_norm = false;
  std::optional<double> limit_s, timeout_scale, hang_after_s, hook_error, hook_owed;
  std::string drill = "when_quick";  // or always, never
};

// What `sweep` measures where its command line says nothing else.
struct ProgramSweepPart {
  std::vector<double> caps;
  std::vector<int64_t> worlds;
  std::optional<int64_t> steps, warmup, rounds;
  bool predict = false;
};

// One run of a file: a combination of its axes.
struct ProgramScenario {
  std::string name;
  AxisValues axes;
  ProgramPart program;
  int64_t world_size = 2;
  std::optional<int64_t> seed;
  // Asked for by the key `faults`, though the list may be empty: it is run as `run` runs it.
  // Without that key it is judged as `verify` judges it.
  bool is_run = false;
  std::vector<ProgramFault> faults;
  Expectation expect;
  ProgramSweepPart sweep;
};

struct ProgramScenarioFile {
  std::string path, name, what;
  std::vector<ProgramScenario> runs;
  bool has_full = false;
  InputErrors notes;
};

// The one list of keys, as of scenarios/scenario_members.h: reading and the schema walk it.
template <class P, class F>
void program_members(P& program, F use) {
  use({.key = "directory",
       .description = "Folder in which the command runs, relative to this file.",
       .size = kNotEmpty},
      program.start.directory);
  use({.key = "spawns",
       .description = "The command starts its ranks itself (mp.spawn); as --spawns."},
      program.start.spawns);
  use({.key = "fresh_processes",
       .description = "A Python for each rank, instead of forking it; as --fresh-processes."},
      program.fresh_processes);
  use({.key = "pretend_gpus",
       .description = "torch.cuda.is_available() says yes, and the CPU does what is asked of CUDA; "
                      "as --pretend-gpus."},
      program.start.pretends_gpus);
  use({.key = "local_batch_norm",
       .description =
           "On one device BatchNorm normalizes the batch of each rank by itself, too; as "
           "--local-batch-norm."},
      program.local_batch_norm);
  use({.key = "limit_s",
       .description = "Seconds that one run may take; as --limit: 120, of a run with faults 600.",
       .bounds = {1, 604'800}},
      program.limit_s);
  use({.key = "drill",
       .description = "Whether a wrong step is run again to name the first wrong operator; always "
                      "and never as --drill and --no-drill.",
       .words = "when_quick always never"},
      program.drill);
  use({.key = "hook_error",
       .description = "How far what the comm hook makes may be from the mean; as --hook-error.",
       .bounds = {1e-9, 1e3}},
      program.hook_error);
  use({.key = "hook_owed",
       .description = "How much a comm hook may owe at any time; as --hook-owed.",
       .bounds = {1e-9, 1e3}},
      program.hook_owed);
  use({.key = "timeout_scale",
       .description = "Of the time-outs of the program's groups, of a run with faults; as "
                      "--timeout-scale.",
       .bounds = {1e-6, 1e3}},
      program.timeout_scale);
  use({.key = "hang_after_s",
       .description = "Seconds without anything new of any rank that are taken for a hang, of a "
                      "run with faults; as --hang-after.",
       .bounds = {1, 604'800}},
      program.hang_after_s);
}

template <class S, class F>
void program_scenario_members(S& scenario, F use) {
  use({.key = "world_size", .description = "Number of ranks.", .bounds = {2, 64}},
      scenario.world_size);
  use({.key = "seed",
       .description = "Seeds torch, NumPy and random of every process; as --seed.",
       .bounds = {0, 4'294'967'295}},
      scenario.seed);
}

template <class S, class F>
void program_sweep_members(S& sweep, F use) {
  use({.key = "caps",
       .description = "Bucket caps in MiB, in place of the script's own.",
       .bounds = {0, 65'536, true},
       .size = kNotEmpty,
       .has_default = false},
      sweep.caps);
  use({.key = "worlds",
       .description = "World sizes. Default: that of the scenario.",
       .bounds = {2, 64},
       .size = kNotEmpty,
       .has_default = false},
      sweep.worlds);
  use({.key = "steps", .description = "Steps of a run that count.", .bounds = {3, 100'000}},
      sweep.steps);
  use({.key = "warmup", .description = "Steps before them that do not.", .bounds = {2, 100'000}},
      sweep.warmup);
  use({.key = "rounds", .description = "Runs of each cap.", .bounds = {1, 100'000}}, sweep.rounds);
  use({.key = "predict",
       .description = "Predict caps between those that are measured; as --predict."},
      sweep.predict);
}

// The schema of such files, made from these lists and from that of scenarios; as text it is
// scenarios/program_scenario_schema.json.
const Schema& program_scenario_schema();
std::string program_scenario_schema_text();

// Has the file the key "program"? Of a folder: has any of its scenario files? False where it cannot
// be read, or is no object.
bool is_program_scenario(const std::string& path);

// Reads, checks and expands one file. All errors at once; never throws, whatever the bytes are.
Expected<ProgramScenarioFile> load_program_scenario(const std::string& path,
                                                    const SuiteOptions& options);

}  // namespace lockstep
