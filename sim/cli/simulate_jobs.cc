#include "sim/cli/simulate_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "scenarios/base/text.h"
#include "sim/calibrate/alternatives.h"
#include "sim/cli/cap_advice.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/simulate_notes.h"
#include "sim/cli/simulation_progress.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "sim/launch/run_files.h"
#include "sim/plan/bucket_layout.h"
#include "sim/plan/plans.h"
#include "sim/report/document.h"
#include "sim/report/fault_marks.h"
#include "sim/report/html/timeline.h"
#include "sim/report/machine.h"
#include "sim/report/timeline_svg.h"

namespace lockstep {
namespace {

// What all runs of a file have in common is said once.
InputErrors once_each(const InputErrors& errors) {
  InputErrors unique;
  for (const InputError& error : errors)
    if (std::none_of(unique.begin(), unique.end(),
                     [&](const InputError& known) { return to_text(known) == to_text(error); }))
      unique.push_back(error);
  return unique;
}

// Ranks of a run that is told rank by rank, and judged.
constexpr int64_t kMostJudged = 64;

SimulateOptions options_of(const SimulateVerb& verb, SimulationProgress* progress) {
  SimulateOptions options;
  options.progress = [progress](int64_t done, int64_t of) { progress->step(done, of); };
  options.threads = verb.threads;
  if (!verb.engine.empty()) options.engine = engine_of(verb.engine).value();
  return options;
}

SimulatedAs as_asked(const SimulateVerb& verb) {
  SimulatedAs as;
  as.ranks = verb.ranks;
  as.steps = verb.steps;
  if (!verb.average.empty()) as.averaging = averaging_of(verb.average).value();
  return as;
}

// Only what virtual time can tell; nothing is computed, so no lane and no bit.
void expect_times_only(Scenario* scenario) {
  for (Expectation& expect : scenario->expect) {
    expect.libtorch.clear();
    if (!expect.outcome && expect.verdict == Verdict::pass) expect.outcome = RunEnding::completed;
    expect.verdict = Verdict::inconclusive;
    expect.lanes.clear();
    expect.cause = expect.tensor = std::nullopt;
    expect.step = expect.bucket = std::nullopt;
    expect.named_collective = std::nullopt;
    expect.within_ms = std::nullopt;
  }
}

SimulatedLine line_of(const RunPlan& plan, const PlannedJob& planned, const SimulatedAs& as) {
  SimulatedLine line;
  line.scenario = plan.scenario.name;
  line.label = label_of(plan.set);
  line.ranks = planned.job.ranks;
  line.steps = planned.job.steps;
  line.reducer = plan.scenario.reducer.kind;
  line.algorithm = exchanges_parts(planned.job) ? to_word(bucket_operation(planned.job))
                                                : to_word(planned.job.cost.algorithm);
  if (has_cap(plan))
    line.cap_mb = as.cap_mb.value_or(plan.scenario.reducer.options.number("bucket_cap_mb"));
  line.buckets = static_cast<int64_t>(planned.job.settled.size());
  if (!planned.job.settled.empty())
    line.tail_mb = static_cast<double>(planned.job.settled.back().bytes) * 1e-6;
  line.notes = planned.notes;
  return line;
}

void fill(const PlannedJob& planned, const SimulatedRun& run, SimulatedLine* line) {
  line->engine = to_word(run.engine);
  line->numbers = numbers_of(planned.job, run);
  line->failure = run.failure;
}

void leave_records(const SimulateVerb& verb, const RunOutcome& outcome) {
  if (!verb.trace.path.empty()) write_trace(verb.trace, outcome);
  if (!verb.svg.empty()) {
    TimelinePicture picture;
    picture.name = outcome.plan.scenario.name + ", in virtual time";
    picture.faults = fault_marks(outcome);
    write_atomically(verb.svg, timeline_svg(timeline_of(outcome), picture));
  }
  if (!verb.out.empty()) leave_outcome(outcome, verb.out + "/0001");
}

std::string drawn(const RunOutcome& outcome, const RunResult& judged) {
  HtmlTimelines one;
  one.add(0, outcome, judged);
  return one.take({true}).front();
}

// A step of the job without what its faults do to a rank, or to all.
std::optional<double> step_ms_without(Job job, std::optional<int64_t> rank) {
  if (!rank) {
    job.schedule = {};
  } else {
    job.schedule.weigh = nullptr;
    job.schedule.at = [at = job.schedule.at, late = *rank](int64_t of, int64_t step) {
      return of == late ? RankEvents{} : at(of, step);
    };
  }
  const auto run = simulate(job);
  if (!run || run.value().failure) return std::nullopt;
  return numbers_of(job, run.value()).step_ms;
}

// Records tell what ranks wait for at buckets, not what they wait for at units of parameters within
// forward and backward: what a step would take otherwise is simulated instead. Neighbours that a
// late rank of their group holds up look as late as it; without one of them a step is no shorter.
void tell_without(const PlannedJob& planned, SimulatedLine* line) {
  if (!planned.job.parts || !line->judged) return;
  RunResult& judged = *line->judged;
  const double step_ms = line->numbers.step_ms;
  if (judged.metrics && judged.metrics->slowdown) {
    const auto ideal_ms = step_ms_without(planned.job, std::nullopt);
    judged.metrics->step_ms = step_ms;
    judged.metrics->ideal_ms = ideal_ms;
    judged.metrics->slowdown.reset();
    if (ideal_ms && *ideal_ms > 0) judged.metrics->slowdown = step_ms / *ideal_ms;
  }
  if (!judged.straggler || !judged.straggler->rank) return;
  Straggler& straggler = *judged.straggler;
  straggler.step_ms = step_ms;
  straggler.without_ms = step_ms_without(planned.job, straggler.rank).value_or(step_ms);
  straggler.cost_ms = step_ms - straggler.without_ms;
  if (has_copies(planned.job) && straggler.cost_ms < kLeastCost * step_ms) {
    Straggler nobody;
    nobody.step_ms = nobody.without_ms = step_ms;
    nobody.steps = straggler.steps;
    straggler = std::move(nobody);
  }
  straggler.text = text_of(straggler);
}

// With the records of all ranks, as of a real run.
Expected<SimulatedLine> recorded_line(const SimulateVerb& verb, SimulationProgress* progress,
                                      const RunPlan& plan, const PlannedJob& planned,
                                      SimulatedLine line) {
  RunPlan asked = plan;
  expect_times_only(&asked.scenario);
  VirtualRecords records(asked, planned);
  const auto run = simulate(planned.job, options_of(verb, progress),
                            [&](const StepTrace& trace) { records.add(trace); });
  if (!run) return run.errors();
  fill(planned, run.value(), &line);
  note_timeouts(plan, as_asked(verb), &line);
  const RunOutcome outcome = records.take(run.value());
  line.judged = judge_run(outcome, {.metrics = true});
  line.judged->again = own_command();
  tell_without(planned, &line);
  if (!verb.html.empty()) line.timeline = drawn(outcome, *line.judged);
  leave_records(verb, outcome);
  return line;
}

InputError too_many(const PlannedJob& planned) {
  return option_error(
      fmt::format("{} ranks and {} steps make {} events: too many to be written down",
                  planned.job.ranks, planned.job.steps, recorded_events(planned)),
      fmt::format("at most {} for --trace, --svg and --out", kMostRecorded));
}

Expected<SimulatedLine> simulated_line(const SimulateVerb& verb, SimulationProgress* progress,
                                       const MachineModel& machine, const RunPlan& plan) {
  const SimulatedAs as = as_asked(verb);
  const auto planned = job_of_plan(plan, machine, as);
  if (!planned) return planned.errors();
  SimulatedLine line = line_of(plan, planned.value(), as);
  note_rounds(verb, machine, planned.value().job, &line);
  note_machine(machine, planned.value().job, &line);
  note_seed(verb, plan, planned.value().job, &line);
  const bool small = planned.value().job.ranks <= kMostJudged &&
                     recorded_events(planned.value()) <= kMostRecorded / 10;
  const bool wanted = !verb.trace.path.empty() || !verb.svg.empty() || !verb.out.empty();
  if (wanted && recorded_events(planned.value()) > kMostRecorded) return too_many(planned.value());
  if (small || wanted) return recorded_line(verb, progress, plan, planned.value(), line);
  const auto run = simulate(planned.value().job, options_of(verb, progress));
  if (!run) return run.errors();
  fill(planned.value(), run.value(), &line);
  note_timeouts(plan, as, &line);
  return line;
}

// How often a run without a time-out would pass it, and what the job's faults cost a step. `run` is
// the job's own, which is the one without a time-out too, unless it was ended by one.
void compare_with_ideal(const SimulateVerb& verb, SimulationProgress* progress, Job job,
                        const SimulatedRun& run, SimulatedLine* line) {
  const int64_t limit_ns = std::exchange(job.collective_ns, 0);
  const auto patient =
      run.failure ? simulate(job, options_of(verb, progress)) : Expected<SimulatedRun>(run);
  if (patient && limit_ns > 0 && !patient.value().failure) {
    int64_t hits = 0;
    for (const StepNumbers& step : patient.value().steps)
      if (step.longest_ns > limit_ns) ++hits;
    line->timeout_chance = wilson(hits, static_cast<int64_t>(patient.value().steps.size()));
    line->numbers = numbers_of(job, patient.value());
  }
  if (job.schedule.touched.empty()) return;
  job.schedule = {};
  const auto ideal = simulate(job, options_of(verb, progress));
  if (ideal && line->numbers.steps > 0)
    line->straggler_ms = line->numbers.step_ms - numbers_of(job, ideal.value()).step_ms;
}

double compute_ms(const Job& job) {
  return static_cast<double>(job.load_ns + job.passes * (job.forward_ns + job.backward_ns) +
                             job.optimizer_ns) *
         1e-6;
}

// How far the step may be off: as far as alternatives of the machine are apart here, or as far as
// runs were that it was compared with.
InputErrors add_error(const MachineModel& machine, const RunPlan& plan, const Job& job,
                      const SimulatedAs& as, SimulatedLine* line) {
  const auto accuracy = accuracy_of(machine, job);
  if (!accuracy) return {};
  line->step_error = std::max(kLeastError, accuracy->step_error);
  auto others = steps_of_alternatives(plan, machine, as);
  if (!others) return others.errors();
  if (others.value().empty()) return {};
  line->of_alternatives = std::move(others.value());
  line->step_error = widest(line->of_alternatives);
  return {};
}

Expected<SimulatedLine> predicted_line(const SimulateVerb& verb, SimulationProgress* progress,
                                       const MachineModel& machine, const RunPlan& plan,
                                       const PlannedJob& planned, const SimulatedAs& as) {
  SimulatedLine line = line_of(plan, planned, as);
  const Job& job = planned.job;
  const auto run = simulate(job, options_of(verb, progress));
  if (!run) return run.errors();
  fill(planned, run.value(), &line);
  // Of alike ranks whose every bucket is late by a draw of its own the skew is not known.
  const bool late = !job.schedule.touched.empty() || (job.noise.any() && !job.noise.per_bucket);
  if (late) compare_with_ideal(verb, progress, job, run.value(), &line);
  note_timeouts(plan, as, &line);
  if (line.numbers.steps > 0) line.efficiency = compute_ms(job) / line.numbers.step_ms;
  note_machine(machine, job, &line);
  note_seed(verb, plan, job, &line);
  if (InputErrors problems = add_error(machine, plan, job, as, &line); !problems.empty())
    return problems;
  if (InputErrors problems = add_long_run(verb, machine, plan.scenario.seed, &line);
      !problems.empty())
    return problems;
  return line;
}

// What a cap makes of a world: two of the same are one line.
using Layout = std::tuple<int64_t, std::vector<BucketWork>, std::vector<BucketWork>>;

bool is_known(const Layout& layout, double cap_mb, std::vector<Layout>* layouts,
              std::vector<SimulatedLine>* lines) {
  const auto known = std::find(layouts->begin(), layouts->end(), layout);
  if (known == layouts->end()) {
    layouts->push_back(layout);
    return false;
  }
  (*lines)[static_cast<size_t>(known - layouts->begin())].same_caps_mb.push_back(cap_mb);
  return true;
}

std::string words_of(const SimulatedAs& as) {
  std::string words;
  if (as.ranks) words += fmt::format(", {} ranks", *as.ranks);
  if (as.cap_mb) words += fmt::format(", cap {} MiB", *as.cap_mb);
  return words;
}

}  // namespace

Expected<std::vector<SimulatedLine>> simulate_plans(const SimulateVerb& verb,
                                                    const MachineModel& machine,
                                                    const std::vector<RunPlan>& plans) {
  std::vector<SimulatedLine> lines;
  InputErrors errors;
  SimulationProgress progress(verb.quiet);
  size_t at = 0;
  for (const RunPlan& plan : plans) {
    progress.next(fmt::format("simulating {} of {}: {}", ++at, plans.size(), plan.scenario.name));
    auto line = simulated_line(verb, &progress, machine, plan);
    const InputErrors problems =
        line ? add_long_run(verb, machine, plan.scenario.seed, &line.value()) : line.errors();
    if (problems.empty()) lines.push_back(std::move(line.value()));
    errors.insert(errors.end(), problems.begin(), problems.end());
  }
  if (!errors.empty()) return once_each(errors);
  return lines;
}

Expected<PredictionJobs> predict(const SimulateVerb& verb, const MachineModel& machine,
                                 const RunPlan& plan) {
  const auto axes = predict_axes(verb.predict, plan);
  if (!axes) return axes.errors();
  std::vector<std::optional<double>> caps(axes.value().caps_mb.begin(), axes.value().caps_mb.end());
  std::vector<std::optional<int64_t>> worlds(axes.value().worlds.begin(),
                                             axes.value().worlds.end());
  if (caps.empty()) caps.emplace_back();
  if (worlds.empty()) worlds.push_back(verb.ranks);
  PredictionJobs prediction;
  std::vector<Layout> layouts;
  std::optional<Accuracy> accuracy;
  SimulationProgress progress(verb.quiet);
  size_t at = 0;
  for (const auto& world : worlds)
    for (const auto& cap : caps) {
      SimulatedAs as = as_asked(verb);
      as.ranks = world;
      as.cap_mb = cap;
      progress.next(
          fmt::format("simulating {} of {}{}", ++at, worlds.size() * caps.size(), words_of(as)));
      const auto planned = job_of_plan(plan, machine, as);
      if (!planned) return planned.errors();
      const Job& job = planned.value().job;
      accuracy = accuracy_of(machine, job);  // of the scenario's compute, which all of them share
      if (cap &&
          is_known({job.ranks, job.first_step, job.settled}, *cap, &layouts, &prediction.lines))
        continue;
      auto line = predicted_line(verb, &progress, machine, plan, planned.value(), as);
      if (!line) return line.errors();
      prediction.lines.push_back(std::move(line.value()));
    }
  const auto usual = has_cap(plan)
                         ? std::optional(plan.scenario.reducer.options.number("bucket_cap_mb"))
                         : std::nullopt;
  if (caps.size() > 1) prediction.advice = advise(prediction.lines, usual, accuracy);
  return prediction;
}

namespace {

int64_t ns_of(double s) { return std::llround(s * 1e9); }

}  // namespace

InputErrors long_run_errors(const SimulateVerb& verb) {
  InputErrors errors;
  if (!verb.mtbf_hours) {
    for (const auto& [name, value] : {std::pair("--work-hours", &verb.work_hours),
                                      {"--checkpoint-s", &verb.checkpoint_s},
                                      {"--checkpoint-every-s", &verb.checkpoint_every_s},
                                      {"--restart-s", &verb.restart_s}})
      if (*value) errors.push_back(option_error(fmt::format("{} without --mtbf-hours", name)));
    return errors;
  }
  for (const auto& [name, value] :
       {std::pair("--checkpoint-s", &verb.checkpoint_s), {"--restart-s", &verb.restart_s}})
    if (!*value) errors.push_back(option_error(fmt::format("--mtbf-hours without {}", name)));
  return errors;
}

InputErrors add_long_run(const SimulateVerb& verb, const MachineModel& machine, uint64_t seed,
                         SimulatedLine* line) {
  if (!verb.mtbf_hours || line->numbers.steps == 0) return {};
  const int64_t inside = machine.cost.ranks_per_host;
  SimulatedLine::OverDays days;
  LongRun& run = days.run;
  run.work_ns = ns_of(verb.work_hours ? *verb.work_hours * 3600 : line->numbers.total_s);
  run.hosts = (line->ranks + inside - 1) / inside;
  run.mtbf_ns = ns_of(*verb.mtbf_hours * 3600);
  run.checkpoint_ns = ns_of(*verb.checkpoint_s);
  run.restart_ns = ns_of(*verb.restart_s);
  run.seed = seed;
  days.best_interval = !verb.checkpoint_every_s;
  run.interval_ns = days.best_interval ? best_interval_ns(run) : ns_of(*verb.checkpoint_every_s);
  if (InputErrors problems = problems_of(run); !problems.empty()) return problems;
  days.numbers = simulate_long_run(run, enough_runs(run), verb.threads);
  days.expected_ns = expected_ns(run);
  line->over_days = days;
  return {};
}

Expected<RunResult> judged_in_virtual_time(const RunPlan& plan, const MachineModel& machine) {
  const auto planned = job_of_plan(plan, machine);
  if (!planned) return planned.errors();
  const int64_t events = recorded_events(planned.value()), most = kMostRecorded / 10;
  if (events > most)
    return option_error(fmt::format("its {} events are too many to be written down", events),
                        fmt::format("at most {}", most));
  VirtualRecords records(plan, planned.value());
  const auto run =
      simulate(planned.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
  if (!run) return run.errors();
  if (run.value().failure)
    return option_error(fmt::format("in virtual time it is ended in step {} by {}",
                                    run.value().failure->step,
                                    to_word(run.value().failure->cause)));
  return judge_run(records.take(run.value()), {.metrics = true, .intervals = true});
}

std::string reason_of(const InputErrors& errors) {
  std::string text;
  for (const InputError& error : errors)
    text += (text.empty() ? "" : "; ") + printable(error.message);
  return text;
}

}  // namespace lockstep
