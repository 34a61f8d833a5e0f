#include "tests/fuzz/kept_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "sim/calibrate/fit.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "sim/judge/judge.h"
#include "sim/launch/protocol.h"
#include "sim/launch/run_files.h"
#include "sim/record/evidence.h"
#include "sim/report/document.h"
#include "sim/report/fault_marks.h"
#include "sim/report/run_text.h"
#include "sim/report/timeline_svg.h"
#include "sim/report/trace/chakra.h"
#include "sim/report/trace/flight_recorder.h"
#include "sim/report/trace/trace.h"
#include "sim/tools/whatif/forecast.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kScenario = R"({"name": "kept", "what": "kept", "seed": 1,
  "world_size": 2, "steps": 3,
  "data": {"kind": "randn", "samples": 12, "features": 4, "targets": 2},
  "batch_size": 4, "model": {"kind": "mlp", "in_features": 4, "hidden": [4], "out_features": 2},
  "loss": {"kind": "mse"}, "optimizer": {"kind": "sgd", "lr": 0.1},
  "compute": {"kind": "emulated", "forward_ms": 1, "backward_ms": 2},
  "lanes": ["replica"], "expect": {"verdict": "pass"}})";

RunPlan planned() {
  const std::string path = folder() + "/kept.json";
  leave(path, kScenario);
  const auto file = load_scenario_file(path, {});
  if (!file) check_errors(file.errors());
  promised(static_cast<bool>(file), "the scenario of the kept run is one");
  const auto plans = make_plans(file.value());
  promised(static_cast<bool>(plans), "the scenario of the kept run can be planned");
  return plans.value().front();
}

RunOutcome simulated(const RunPlan& plan, const MachineModel& machine) {
  const auto job = job_of_plan(plan, machine);
  promised(static_cast<bool>(job), "the kept run can be simulated");
  VirtualRecords records(plan, job.value());
  const auto run =
      simulate(job.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
  promised(static_cast<bool>(run), "the kept run can be simulated");
  return records.take(run.value());
}

KeptRun make_kept_run() {
  KeptRun kept;
  kept.dir = folder() + "/0001";
  RunOutcome outcome = simulated(planned(), default_machine_model());
  Evidence evidence;
  evidence.error = {ErrorKind::timeout, "all_reduce 3 timed out", "backward", 0, 2, 1, 3, 1, 5, 5};
  evidence.mismatches.emplace_back().lane = Lane::replica;
  evidence.check_reasons.push_back({Check::manifest, 1, -1, "rank 1: differs"});
  evidence.final_hash = std::string(32, 'a');
  evidence.reducer_data = "{\"buckets\":1}";
  outcome.evidence = {to_json_text(evidence), to_json_text(Evidence())};
  leave_outcome(outcome, kept.dir);
  const auto text_of_file = [](const std::string& path) {
    return read_foreign_file(path).value_or("");
  };
  kept.plan = text_of_file(plan_path(kept.dir));
  kept.ends = text_of_file(ends_path(kept.dir));
  kept.evidence = text_of_file(evidence_path(kept.dir, 0));
  kept.records = text_of_file(records_path(kept.dir, 0));
  return kept;
}

void draw(const RunOutcome& outcome, const Timeline& timeline) {
  TimelinePicture picture;
  picture.name = outcome.plan.scenario.name;
  picture.faults = fault_marks(outcome);
  (void)timeline_svg(timeline, picture);
}

// In virtual time beside what was measured; large plans take as long as they say, and are left out.
void simulate_again(const RunOutcome& outcome, const Timeline& timeline) {
  const auto fit = fit_machine({samples_of(outcome.plan, timeline, outcome.run_dir)}, 2);
  if (!fit) return;
  const auto job = job_of_plan(outcome.plan, fit.value().machine);
  if (job && recorded_events(job.value()) <= 10'000) {
    VirtualRecords records(outcome.plan, job.value());
    const auto run =
        simulate(job.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
    if (run) (void)judge_run(records.take(run.value()), {.metrics = true});
  }
}

}  // namespace

const KeptRun& kept_run() {
  static const KeptRun made = make_kept_run();
  return made;
}

std::string ends_for(const std::string& plan) {
  std::string ends = kept_run().ends;
  const std::string old =
      fmt::format("{:016x}", hash64(kept_run().plan.data(), kept_run().plan.size()));
  const size_t at = ends.find(old);
  promised(at != std::string::npos, "ends.json names its plan");
  return ends.replace(at, old.size(), fmt::format("{:016x}", hash64(plan.data(), plan.size())));
}

void judge_kept_run(const std::string& dir, const Slow& slow) {
  std::string why;
  const auto outcome = read_stored_run(dir, &why);
  if (!outcome) {
    promised(!why.empty(), "a refusal says why");
    return;
  }
  const RunResult result = judge_run(*outcome, {.metrics = true, .intervals = slow.intervals});
  promised(!result.expected.empty(), "a run that is read is judged");
  (void)as_json(result);
  (void)run_text(result, Style(false));
  const Timeline timeline = timeline_of(*outcome);
  draw(*outcome, timeline);
  if (slow.intervals) (void)forecast_of(replayed_steps_of(timeline), {}, 1);
  write_trace({"/dev/null"}, *outcome);
  const TracedRun run = read_for_traces(*outcome);
  for (size_t rank = 0; rank < run.ranks(); ++rank) {
    (void)flight_recorder_dump(run, rank);
    (void)chakra_trace(run, rank);
  }
  if (slow.simulation) simulate_again(*outcome, timeline);
}

}  // namespace lockstep::fuzz
