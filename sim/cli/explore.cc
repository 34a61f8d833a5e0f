#include "sim/cli/explore.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
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
    if (on_) print_error("\r\x1b[K");
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  void show(const std::string& text) const {
    if (!on_) return;
    print_error(fmt::format("\r\x1b[K{}", text));
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

struct ToExplore {
  RunPlan plan;
  std::vector<std::string> further_words;  // of its file
};

std::string command_again(const ExploreOptions& options, const ToExplore& one) {
  const RunPlan& plan = one.plan;
  std::string text = as_called(again_command(plan.file, options.selection.sets, plan.set,
                                             plan.scenario.seed, one.further_words, "explore"));
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

Expected<std::vector<ToExplore>> plans_to_explore(const Selection& selection) {
  auto files = select(selection);
  if (!files) return files.errors();
  std::vector<ToExplore> plans;
  InputErrors errors;
  for (const SelectedFile& file : files.value())
    for (const RunPlan& plan : file.plans) {
      auto explored = explorable(plan);
      if (explored)
        plans.push_back({std::move(explored.value()), file.further_words});
      else
        errors.insert(errors.end(), explored.errors().begin(), explored.errors().end());
    }
  if (!errors.empty()) return errors;
  return plans;
}

ExploredScenario explore_one(const ExploreOptions& options, const std::string& worker,
                             const ToExplore& explored, Signals& signals) {
  const RunPlan& plan = explored.plan;
  const Scenario& scenario = plan.scenario;
  ExploreSpec spec = options.spec;
  spec.seed = scenario.seed;
  ExploredScenario one;
  one.name = scenario.name;
  one.label = label_of(plan.set);
  one.file = plan.file;
  one.reducer = scenario.reducer.kind;
  one.again = command_again(options, explored);
  one.expects_finding = expects_finding(scenario);
  const Line line(options.quiet);
  const int64_t start_ns = now_ns();
  one.result = explore_in_worker(worker, plan, spec, signals, [&](int64_t done) {
    line.show(progress_text(one.name, done, spec.schedules, now_ns() - start_ns));
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
  if (plans.value().empty())
    return nothing_selected(
        fmt::format("no run contains \"{}\"", printable(options.selection.filter)), "explore",
        options.json, {.junit = "", .annotations = "none"});
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json);
  ExploreDocument document;
  document.spec = options.spec;
  document.spec.seed = plans.value().front().plan.scenario.seed;
  document.machine = this_machine();
  const int64_t start_ns = now_ns();
  {
    Signals signals;
    for (const ToExplore& one : plans.value()) {
      document.scenarios.push_back(explore_one(options, worker.value(), one, signals));
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
