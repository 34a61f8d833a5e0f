#pragma once

#include "sim/report/ci/test_report.h"

namespace lockstep {

// What nobody should be able to write into a report by giving things these names.
inline constexpr const char* kHostile =
    "a<b>&\"'\x01\xff|`::error::x%0A,: ]]>\nline two\r\t\xef\xbf\xbf";

inline RunResult made_run(const std::string& name, const std::string& label) {
  RunResult run;
  run.name = name;
  run.label = label;
  run.file = "scenarios/" + name + ".json";
  run.world_size = 3;
  run.seed = 123;
  run.reducer = "bucketed";
  run.communicator = "gloo";
  run.verdict = Verdict::pass;
  run.expected = "pass";
  run.met = true;
  run.outcome = RunEnding::completed;
  run.duration_ms = 420;
  run.again = "lockstep verify " + run.file + " --set /world_size=3 --seed 123";
  return run;
}

inline RunResult made_failure(const std::string& name, const std::string& label) {
  RunResult run = made_run(name, label);
  run.verdict = Verdict::fail;
  run.met = false;
  run.unmet = {"verdict: expected pass, got fail"};
  Divergence d;
  d.lane = Lane::replay;
  d.step = 2;
  d.state_kind = StateKind::gradient;
  d.tensor = "fc2.weight";
  d.bucket = 1;
  d.element = {17, 4};
  d.cause = "order_only";
  d.explanation = "the same addends in another order";
  run.first_divergence = d;
  return run;
}

// A rank is to blame, and nothing is decided.
inline RunResult made_breakdown(const std::string& name, const std::string& label) {
  RunResult run = made_run(name, label);
  run.verdict = Verdict::inconclusive;
  run.met = std::nullopt;
  run.outcome = RunEnding::failed;
  Failure failure;
  failure.rank = 2;
  failure.kind = "hang";
  failure.message = "rank 2 never entered all_reduce 57";
  run.failure = failure;
  return run;
}

inline ResultDocument made_document() {
  ResultDocument document;
  document.seed = 123;
  document.libraries.torch = "1.13.1";
  document.runs = {made_run("toy", ""), made_failure("mlp", "world_size=3"),
                   made_run("mlp", "world_size=2"), made_breakdown("toy", "reducer=flat")};
  document.runs.push_back(made_failure("mlp", "world_size=6"));
  document.runs.back().baseline = "known";
  document.not_run = {{"toy", "scenarios/toy.json", "reducer=c10d"}};
  document.verdict = Verdict::fail;
  document.exit_code = kExitFail;
  document.duration_ms = 2100;
  return document;
}

}  // namespace lockstep
