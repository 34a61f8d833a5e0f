#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/report/ci/test_report.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/sweep_runs.h"

namespace lockstep {

// What `lockstep sweep -- COMMAND` measured: the source of its text, of --json (`lockstep schema
// --program-sweep`), --csv, --markdown and --junit.
struct ProgramSweepResult {
  ProgramSweepPlan plan;
  Machine machine;
  std::vector<ProgramSweepWorld> worlds;
  double duration_s = 0;
  int signal = 0;  // that interrupted us
};

// pass: measured. inconclusive: it could not be, or the machine was busy.
Verdict verdict_of(const ProgramSweepResult& result);
int exit_code_of(const ProgramSweepResult& result);

// Table and answer of each world size; quiet: the answer alone.
std::string program_sweep_text(const ProgramSweepResult& result, bool quiet,
                               const Style& style = Style(false));
std::string program_sweep_csv(const ProgramSweepResult& result);
std::string program_sweep_markdown(const ProgramSweepResult& result);
nlohmann::ordered_json as_json(const ProgramSweepResult& result);
TestReport test_report(const ProgramSweepResult& result);

}  // namespace lockstep
