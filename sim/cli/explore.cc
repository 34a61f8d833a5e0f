#include "sim/cli/explore.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "scenarios/base/clock.h"
#include "sim/cli/conclude.h"
#include "sim/cli/explore_worker.h"
#include "sim/cli/output_files.h"
#include "sim/cli/worker_program.h"
#include "sim/explore/cut.h"
#include "sim/judge/words.h"
#include "sim/report/document.h"
#include "sim/report/explore_document.h"

namespace lockstep {
namespace {

// One line that moves on a terminal; elsewhere nothing.
class Line {
 public:
  explicit Line(bool quiet) : on_(!quiet && isatty(STDERR_FILENO) == 1) {}
  ~Line() {
    if (on_) fmt::print(stderr, "\r\x1b[K");
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  void show(const std::string& text) const {
    if (!on_) return;
    fmt::print(stderr, "\r\x1b[K{}", text);
    std::fflush(stderr);
  }

 private:
  const bool on_;
};

std::string progress_text(const std::string& name, int64_t explored, int64_t schedules,
                          int64_t elapsed_ns) {
  std::string text = fmt::format("{} {}/{}  {} %", name, grouped(explored), grouped(schedules),
                                 100 * explored / schedules);
  if (explored > 0)
    text +=
        fmt::format("  {} s left", elapsed_ns / explored * (schedules - explored) / 1'000'000'000);
  return text;
}

std::string command_again(const ExploreOptions& options, const RunPlan& plan) {
  std::string text =
      as_called(again_command(plan.file, options.selection.sets, plan.set, plan.scenario.seed,
                              further_words(options.selection), "explore"));
  if (options.spec.exhaustive)
    text += fmt::format(" --exhaustive --schedules {}", options.spec.schedules);
  if (options.spec.preemptions) text += fmt::format(" --preemptions {}", *options.spec.preemptions);
  return text;
}

bool expects_finding(const Scenario& scenario) {
  for (const Expectation& expected : scenario.expect)
    if (expected.verdict == "fail" || expected.outcome == "failed") return true;
  return false;
}

Expected<std::vector<RunPlan>> plans_to_explore(const Selection& selection) {
  auto files = select(selection);
  if (!files) return files.errors();
  std::vector<RunPlan> plans;
  InputErrors errors;
  for (const SelectedFile& file : files.value())
    for (const RunPlan& plan : file.plans) {
      auto explored = explorable(plan);
      if (explored)
        plans.push_back(std::move(explored.value()));
      else
        errors.insert(errors.end(), explored.errors().begin(), explored.errors().end());
    }
  if (!errors.empty()) return errors;
  return plans;
}

ExploredScenario explore_one(const ExploreOptions& options, const std::string& worker,
                             const RunPlan& plan, Signals& signals) {
  const Scenario& scenario = plan.scenario;
  ExploreSpec spec = options.spec;
  spec.seed = scenario.seed;
  ExploredScenario one;
  one.name = scenario.name;
  one.label = label_of(plan.set);
  one.file = plan.file;
  one.reducer = scenario.reducer.kind;
  one.again = command_again(options, plan);
  one.expects_finding = expects_finding(scenario);
  const Line line(options.quiet);
  const int64_t start_ns = now_ns();
  one.result = explore_in_worker(worker, plan, spec, signals, [&](int64_t explored) {
    line.show(progress_text(one.name, explored, spec.schedules, now_ns() - start_ns));
  });
  return one;
}

int report_exploration(const ExploreOptions& options, const ExploreDocument& document) {
  const int code = write_output("--json", options.json, document.exit_code,
                                [&] { return to_text(as_json(document)); });
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(options.quiet ? explore_answer(document) : explore_text(document, style),
                      code);
}

}  // namespace

int explore(const ExploreOptions& options) {
  InputErrors errors;
  check_output("--json", options.json, &errors);
  if (!errors.empty()) return bad_input(errors);
  const auto plans = plans_to_explore(options.selection);
  if (!plans) return bad_input(plans.errors(), options.json);
  if (plans.value().empty()) {
    fmt::print(stderr, "nothing selected: no run contains \"{}\"; exit {}\n",
               options.selection.filter, kExitNothing);
    return kExitNothing;
  }
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json);
  ExploreDocument document;
  document.spec = options.spec;
  document.spec.seed = plans.value().front().scenario.seed;
  document.machine = this_machine();
  const int64_t start_ns = now_ns();
  {
    Signals signals;
    for (const RunPlan& plan : plans.value()) {
      document.scenarios.push_back(explore_one(options, worker.value(), plan, signals));
      if (document.scenarios.back().result.signal != 0) break;
    }
  }
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  for (const ExploredScenario& one : document.scenarios)
    if (auto libraries = libraries_of(one.result.libraries)) document.libraries = *libraries;
  conclude(&document);
  return report_exploration(options, document);
}

}  // namespace lockstep
