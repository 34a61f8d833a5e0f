#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "sim/judge/lanes.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

std::string ulp_text(uint64_t ulp) {
  if (ulp == UINT64_MAX) return "not finite";
  if (ulp > INT64_MAX) return scientific(static_cast<double>(ulp)) + " ulp";  // of two signs
  return grouped(static_cast<int64_t>(ulp)) + " ulp";
}

std::string values_of(const Divergence& d) {
  if (!d.run_value || !d.golden_value) return "";
  const std::string run = digits_of(*d.run_value), golden = digits_of(*d.golden_value);
  const size_t width = std::max(run.size(), golden.size());
  const std::string reference = d.lane == "replica" ? "rank 0" : "golden";
  return fmt::format("      run     {:<{}}  {}\n      {}  {:<{}}  {}      {}; {} of {} {} {}{}\n",
                     run, width, d.run_bits, reference, golden, width, d.golden_bits,
                     ulp_text(d.ulp), grouped(d.differing), grouped(d.numel),
                     plural(d.numel, "element"), d.differing == 1 ? "differs" : "differ",
                     d.differing > 1 ? ", at most " + ulp_text(d.max_ulp) : "");
}

std::string failure_lines(const Failure& f) {
  std::string text = fmt::format("  failure  {}: {}\n", f.kind, f.message);
  if (!f.cause.empty()) text += fmt::format("  cause  {}\n", f.cause);
  if (!f.last_event.empty()) text += fmt::format("  last event  {}\n", f.last_event);
  if (!f.secondary.empty())
    text +=
        fmt::format("  because of it  {} {} failed as well\n",
                    plural(static_cast<int64_t>(f.secondary.size()), "rank"), list_of(f.secondary));
  if (!f.stack.empty()) text += "  its stack then\n";
  for (const std::string& frame : f.stack) text += fmt::format("      {}\n", frame);
  if (!f.log_tail.empty()) text += "  last lines of its log\n";
  for (const std::string& line : f.log_tail) text += fmt::format("      {}\n", line);
  return text;
}

std::string lane_lines(const RunResult& run) {
  std::string text;
  for (const LaneResult& lane : run.lanes) {
    const bool speaks = lane.verdict == "fail" || lane.verdict == "inconclusive" ||
                        lane.verdict == "void" || lane.verdict == "not_applicable";
    if (speaks) text += fmt::format("  lane {}  {}: {}\n", lane.lane, lane.verdict, lane.reason);
  }
  return text;
}

std::string failed_lanes(const RunResult& run) {
  std::string text;
  for (const LaneResult& lane : run.lanes)
    if (lane.verdict == "fail") text += " " + lane.lane;
  if (text.empty()) return "";
  const bool one = text.find(' ', 1) == std::string::npos;
  return (one ? "  lane" : "  lanes") + text;
}

}  // namespace

std::string divergence_place(const Divergence& d) {
  std::string text = d.step == 0 ? "before step 1" : fmt::format("step {}", d.step);
  if (!d.tensor.empty())
    text +=
        fmt::format(", {} of {}",
                    d.state_kind == "optimizer_state" ? "optimizer state" : d.state_kind, d.tensor);
  else if (!d.state_kind.empty())
    text += ", " + d.state_kind;
  if (d.bucket) text += fmt::format(", bucket {}", *d.bucket);
  if (!d.element.empty()) text += fmt::format(", element [{}]", fmt::join(d.element, ", "));
  if (!d.ranks.empty())
    text += fmt::format(", seen on {} {}", plural(static_cast<int64_t>(d.ranks.size()), "rank"),
                        list_of(d.ranks));
  return text;
}

std::string again_lines(const RunResult& run) {
  std::string text = fmt::format("  again  {}\n", run.again);
  if (!run.told_command.empty())
    text += fmt::format("  it says that it was run with: {}\n",
                        nlohmann::json(printable(run.told_command)).dump());
  return text;
}

std::string failure_text(const RunResult& run, const Style& style) {
  std::string text = style.verdict(run.verdict, run.verdict) + "  " + run.name;
  if (!run.label.empty()) text += "  " + run.label;
  text += failed_lanes(run) + "\n";
  if (run.baseline == "regression") text += "  regression  as expected in the baseline\n";
  for (const std::string& unmet : run.unmet) text += fmt::format("  unmet  {}\n", unmet);
  if (run.first_divergence) {
    text += fmt::format("  first difference  {}\n", divergence_place(*run.first_divergence));
    text += values_of(*run.first_divergence);
  }
  for (const std::string& reason : run.check_reasons) text += fmt::format("  check  {}\n", reason);
  text += lane_lines(run);
  if (run.failure) text += failure_lines(*run.failure);
  if (run.first_divergence)
    text += fmt::format("  cause  {}: {}\n", run.first_divergence->cause,
                        run.first_divergence->explanation);
  text += again_lines(run);
  if (!run.run_dir.empty()) text += fmt::format("  evidence  {}\n", short_path(run.run_dir));
  return text;
}

}  // namespace lockstep
