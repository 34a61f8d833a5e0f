#include "sim/report/run_text.h"

#include <fmt/format.h>

#include "sim/judge/lanes.h"
#include "sim/report/metrics_table.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

std::string met_word(const RunResult& run) {
  if (run.undecided == Undecided::busy_machine) return "inconclusive: busy machine";
  if (!run.met) return "undecided";
  return *run.met ? "met" : "not met";
}

std::string color_of(const RunResult& run) {
  if (!run.met) return "inconclusive";
  return *run.met ? "pass" : "fail";
}

// "completed, as expected: 10 steps in 0.93 s, final weights 3f2a..."
std::string what_happened(const RunResult& run, const Style& style) {
  const std::string how = run.met == true ? ", as expected" : run.met ? ", not as expected" : "";
  const std::string head = style.verdict(color_of(run), run.outcome + how);
  if (run.failure) return fmt::format("{}: {}\n", head, run.failure->message);
  std::string text =
      fmt::format("{}: {} {} in {:.2f} s", head, grouped(run.steps), plural(run.steps, "step"),
                  static_cast<double>(run.duration_ms) * 1e-3);
  for (const LaneResult& lane : run.lanes) text += fmt::format(", {} {}", lane.lane, lane.verdict);
  return text + "\n";
}

std::string because_of_it(const Failure& failure) {
  if (failure.secondary.empty()) return "";
  return fmt::format("  because of it  {} {} failed as well\n",
                     plural(static_cast<int64_t>(failure.secondary.size()), "rank"),
                     list_of(failure.secondary));
}

}  // namespace

std::string run_text(const RunResult& run, const Style& style) {
  std::string text = run.name + (run.label.empty() ? "" : "  " + run.label) + "\n";
  if (run.metrics && !run.metrics->steps.empty()) text += metrics_table(run, style);
  text += what_happened(run, style);
  if (run.failure) text += because_of_it(*run.failure);
  if (run.first_divergence)
    text += fmt::format("  cause  {}: {}\n", run.first_divergence->cause,
                        run.first_divergence->explanation);
  text += fmt::format("  expected: {}: {}\n", run.expected, met_word(run));
  for (const std::string& unmet : run.unmet) text += fmt::format("  unmet  {}\n", unmet);
  if (run.met == true) return text;
  text += again_lines(run);
  if (!run.run_dir.empty()) text += fmt::format("  evidence  {}\n", short_path(run.run_dir));
  return text;
}

}  // namespace lockstep
