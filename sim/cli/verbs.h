#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/parse/suite.h"
#include "sim/cli/outputs.h"
#include "sim/plan/plan.h"
#include "sim/report/document.h"
#include "sim/report/trace/trace.h"

namespace lockstep {

// The verbs behind the command line: plain functions of their options, each returning an exit code
// and printing results on standard output, everything else on standard error.

// Which runs of which files.
struct Selection {
  std::vector<std::string> paths;
  std::vector<std::string> sets;
  std::optional<uint64_t> seed;
  std::string filter;  // part of a scenario's name or of a run's label
  bool full = false;
  std::string data_dir;                     // as given
  std::vector<std::string> trusted_models;  // as given
  bool trusts_programs = false;             // scenarios of programs are commands: they may be run
  SimulatedSize simulated;                  // of `simulate`: faults may name its ranks and steps
};
// The options of a selection that --set and --seed do not cover, as words of a command line.
std::vector<std::string> further_words(const Selection& selection);

// One of several parts of a selection (narrow.h).
struct Shard {
  int64_t index = 1, count = 1;
};

// Of verify and of run, which differ in what they print.
struct VerifyOptions {
  Selection selection;
  std::optional<Shard> shard;
  bool last_failed = false;  // only what failed when it was run last
  bool fail_fast = false;    // nothing is begun after the first run that is not as expected
  std::string baseline;      // --json of an earlier invocation
  CiOptions ci;
  std::string json, html, markdown;
  std::string out;
  std::optional<std::string> export_dir;
  std::string save_weights;  // a file
  TraceOptions trace;
  std::string color = "auto";
  int64_t jobs = 0;
  bool list = false, quiet = false, verbose = false;
  bool fresh_processes = false, keep = false;
  bool metrics = false;  // of every run, with raw intervals
  bool explain = false;  // verb run: says of every run what happened and why
  const char* verb() const { return explain ? "run" : "verify"; }
};
int verify(const VerifyOptions& options);

// From what a run left behind: the verdict again, metrics, the straggler. Of a trace that others
// left: what its stragglers cost.
struct AnalyzeOptions {
  std::string folder;  // of one run, or of an invocation; or a file: a trace
  std::string json, html, svg;
  TraceOptions trace;
  CiOptions ci;
  std::string machine;  // on which its plan is simulated; empty: the one that the run itself shows
  std::optional<int64_t> svg_step;  // the one that is drawn; else one of median length
  std::string color = "auto";
  bool metrics = false;  // with raw intervals in `json`
};
int analyze(const AnalyzeOptions& options);
int analyze_trace(const AnalyzeOptions& options);

// Measures combinations of bucket caps, world sizes and reducers. What is not given here comes from
// the key `sweep` of the scenario, and then from the scenario or a default.
struct SweepOptions {
  Selection selection;                 // one file
  std::string caps, worlds, reducers;  // as given; empty: not given
  std::vector<std::string> vary;       // "/pointer=[value, ...]"
  std::optional<int64_t> steps, warmup, rounds;
  std::vector<std::string> thresholds;
  std::string baseline, reference;
  std::string json, html, csv, markdown, svg, out;
  CiOptions ci;
  std::string color = "auto";
  bool allow_busy = false, quiet = false;
};
int sweep(const SweepOptions& options);

// A small data set in the files of a published one.
struct DataOptions {
  std::string kind;  // mnist | cifar10
  std::string folder;
  int64_t samples = 600;
  uint64_t seed = 0;
};
int write_data(const DataOptions& options);

// Layer times of a scenario's model, for emulated compute.
struct ProfileOptions {
  Selection selection;
  std::string out;
  int64_t repetitions = 11;
};
int profile(const ProfileOptions& options);

int scenario_check(const Selection& selection);
int scenario_list(const Selection& selection);
int scenario_explain(const Selection& selection);
int doctor();
int version();
// Replaces this program by lockstep-worker; returns only if that cannot be.
int exec_worker(const std::vector<std::string>& arguments);

// One file with the plans that the filter leaves.
struct SelectedFile {
  std::string path, name, what;
  std::vector<RunPlan> plans;
  bool in_folder = false;                       // found, not named
  std::vector<NotRun> left_out = {};            // no longer among `plans`
  std::vector<std::string> further_words = {};  // those of the selection that it has a use for
  ScenarioFile places = {};                     // without its combinations: for errors found later
};
// All errors of all files, or all files (those of which nothing is left included).
Expected<std::vector<SelectedFile>> select(const Selection& selection);

// Prints errors on standard error, one a line, then "2 errors; nothing was run; exit 2"; writes
// them to `json` too where that is not empty, and to what `ci` asks for. Returns 2.
int bad_input(const InputErrors& errors, const std::string& json = "", const CiOptions& ci = {});

// print() of sim/report, with the error on standard error: `code`, or 2 if it could not be printed.
int print_result(const std::string& text, int code);

// lockstep-worker beside this program, or why there is none.
Expected<std::string> find_worker();

}  // namespace lockstep
