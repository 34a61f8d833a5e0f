#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/report/ci/test_report.h"
#include "sim/tools/program/result.h"
#include "sim/tools/program/run_asked.h"
#include "sim/tools/program/scenario.h"
#include "sim/tools/program/verify.h"

namespace lockstep {

// Runs scenarios of programs and holds what came out against what their files expect, by the rules
// of all scenarios (sim/judge/expectation.h).

// The one that there is: of a run with faults, or of one that was judged.
struct ProgramScenarioRun {
  const ProgramScenario* scenario = nullptr;
  std::string file;
  std::optional<ProgramResult> verified;
  std::optional<RanProgram> ran;
  RunResult judged;  // verdict, met, unmet and why nothing can be said of them
  double duration_s = 0;
};

// What verify and run do where a command line asks for the same.
ProgramVerification verification_of(const ProgramScenario& scenario);
ProgramRunAsked run_of(const ProgramScenario& scenario);

// What an expectation is compared with. Nothing of it is of the expectation.
RunResult observed(const ProgramResult& result);
RunResult observed(const ProgramRunResult& result);

// met, unmet and undecided of `judged`, which has the verdict. A failure of a run that was cut off
// or that nobody can be named for is undecided, unless an inconclusive verdict is expected.
void judge_program_expectation(const Expectation& expect, bool interrupted, RunResult* judged);

// One after another; the Python of one that has the same command is kept for the next.
class ProgramScenarioRunner {
 public:
  ProgramScenarioRunner(std::string scratch, Signals* signals)
      : scratch_(std::move(scratch)), signals_(signals) {}
  ProgramScenarioRun run(const ProgramScenario& scenario, const std::string& file);

 private:
  ProgramZygotes* zygotes_of(const ProgramVerification& asked);

  std::string scratch_;
  Signals* signals_;
  int64_t count_ = 0;
  std::vector<std::string> words_;  // of the command, the folder first
  std::unique_ptr<ProgramZygotes> zygotes_;
};

int signal_of(const ProgramScenarioRun& run);

// Of all runs: what their results are against what was expected.
struct ProgramScenarioResult {
  std::string verb;  // verify or run, as it was asked for
  std::vector<ProgramScenarioRun> runs;
  int64_t not_run = 0;  // after one that was not as expected, or an interruption
  double duration_s = 0;
};
Verdict verdict_of(const ProgramScenarioResult& result);
int exit_code_of(const ProgramScenarioResult& result);

// One line for each run, what it showed, and an answer; quiet: only what is not as expected.
std::string program_scenarios_text(const ProgramScenarioResult& result, bool quiet);
nlohmann::ordered_json as_json(const ProgramScenarioResult& result);
TestReport test_report(const ProgramScenarioResult& result);

}  // namespace lockstep
