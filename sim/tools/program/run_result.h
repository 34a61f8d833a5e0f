#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/straggler.h"
#include "sim/judge/judge.h"
#include "sim/report/ci/test_report.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/run_faults.h"
#include "sim/tools/program/run_watch.h"

namespace lockstep {

// What `lockstep run -- COMMAND` found: the source of its text, of --json (`lockstep schema
// --program-run`) and of --junit. Attribution is that of our own runs (sim/judge, sim/analysis),
// and never sees the injected faults.

struct ProgramRunResult {
  std::vector<std::string> command;
  int64_t world_size = 0;
  double timeout_scale = 1;
  std::vector<ProgramFault> faults;
  std::vector<std::vector<int64_t>> acted;  // by fault: the ranks on which it did
  bool completed = false;                   // all processes ended well
  std::optional<Failure> failure;
  // All ranks ended at one line by exceptions of one type, each in words of its own.
  bool disagree = false;
  std::optional<Straggler> straggler;  // of a run that completed
  std::string no_straggler;            // why it is not known, where that is known
  std::string why;                     // inconclusive
  std::string places;                  // where ranks were that the limit found at work
  bool on_cpu = false;                 // CUDA was asked for, and was the CPU
  std::string advice;                  // of one that came to nothing and asked for GPUs
  std::vector<ProgramRankFacts> ranks;
  std::vector<std::string> ends;    // by rank: "exit code 0", "SIGKILL (9)", "ended by lockstep"
  std::vector<int64_t> last_steps;  // by rank: that it ended
  double duration_s = 0;
  int signal = 0;  // that interrupted us
};

ProgramRunResult judge_run(const ProgramRun& run, const std::vector<ProgramFault>& faults,
                           const ProgramLaunch& launch, const ProgramWatch& watch);

// pass: completed; fail: it did not.
Verdict verdict_of(const ProgramRunResult& result);
int exit_code_of(const ProgramRunResult& result);

// Who failed, where, and who because of it; of a result that has a failure.
std::string failure_text(const ProgramRunResult& result);
nlohmann::ordered_json failure_json(const ProgramRunResult& result);  // null: none

// All that is said, without the last line.
std::string program_run_body(const ProgramRunResult& result);
std::string program_run_text(const ProgramRunResult& result, bool quiet);
nlohmann::ordered_json as_json(const ProgramRunResult& result);
TestReport test_report(const ProgramRunResult& result);

}  // namespace lockstep
