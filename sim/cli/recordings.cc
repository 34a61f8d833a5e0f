#include "sim/cli/recordings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "scenarios/base/json_values.h"
#include "sim/cli/conclude.h"
#include "sim/judge/judge.h"
#include "sim/launch/recording.h"
#include "sim/report/document.h"
#include "sim/report/metrics_table.h"
#include "sim/report/recorded_analysis.h"
#include "sim/report/trace.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json head(int exit_code) {
  return {{"schema_version", 1},
          {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()},
          {"exit_code", exit_code}};
}

Json ranks_json(const RankDivergence& ranks) {
  if (ranks.step == 0) return nullptr;
  return {{"rank", ranks.rank},
          {"step", ranks.step},
          {"state_kind", ranks.kind},
          {"tensor", ranks.tensor}};
}

Json first_json(const RecordedDivergence& found) {
  if (found.step == 0) return nullptr;
  return {{"step", found.step},         {"state_kind", found.kind},
          {"tensor", found.tensor},     {"a_hash", or_null(found.a)},
          {"b_hash", or_null(found.b)}, {"differing", found.differing},
          {"tensors", found.in_step}};
}

std::string kind_text(const std::string& kind) {
  return kind == "optimizer_state" ? "optimizer state" : kind;
}

std::string ranks_text(const std::string& side, const RankDivergence& ranks) {
  if (ranks.step == 0) return "";
  return fmt::format("  {}'s own ranks disagree  step {}, {} of {}: rank {} differs from rank 0\n",
                     side, ranks.step, kind_text(ranks.kind), ranks.tensor, ranks.rank);
}

std::string first_text(const RecordedDivergence& found) {
  return fmt::format("  first difference  step {}, {} of {}\n      A  {}\n      B  {}\n",
                     found.step, kind_text(found.kind), found.tensor,
                     found.a.empty() ? "has no such tensor" : found.a,
                     found.b.empty() ? "has no such tensor" : found.b);
}

std::string recording_answer(const RecordedDivergence& found, int code, const Style& style) {
  if (code == kExitNothing)
    return fmt::format("nothing to compare: no step was hashed in both; exit {}\n", code);
  if (found.step != 0)
    return fmt::format(
        "{}: {} of {} {} differ after step {}, the first that does of {} {} hashed "
        "in both; exit {}\n",
        style.verdict("fail", "fail"), grouped(found.differing), grouped(found.in_step),
        plural(found.in_step, "tensor"), found.step, grouped(found.steps),
        plural(found.steps, "step"), code);
  if (code == kExitFail)
    return fmt::format("{}: ranks of one recording disagree; exit {}\n",
                       style.verdict("fail", "fail"), code);
  return fmt::format("{}: {} hashes of {} {} compared, 0 differ\n", style.verdict("pass", "pass"),
                     grouped(found.tensors), grouped(found.steps), plural(found.steps, "step"));
}

}  // namespace

int analyze_recording(const AnalyzeOptions& options) {
  if (!options.svg.empty())
    return bad_input({option_error("--svg is not there for a recording; take --trace")});
  const auto outcome = read_recorded_run(options.folder);
  if (!outcome) return bad_input(outcome.errors(), options.json);
  const Timeline timeline = timeline_of(outcome.value());
  RunResult result;
  result.metrics = metrics_of(timeline);
  result.straggler = find_straggler(models_of(timeline));
  const int code = result.metrics->steps.empty() ? kExitInconclusive : kExitPass;
  try {
    if (!options.trace.empty()) write_trace(options.trace, outcome.value());
    if (!options.json.empty())
      write_atomically(
          options.json,
          to_text(as_json(RecordedAnalysis{options.folder, outcome.value().plan.scenario.world_size,
                                           code, result, options.metrics ? &timeline : nullptr})));
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(fmt::format("{}, recorded by {} {}\n{}", outcome.value().plan.scenario.name,
                                  outcome.value().ranks.size(), plural(timeline.world_size, "rank"),
                                  metrics_table(result, style)),
                      code);
}

int compare_recordings(const CompareOptions& options) {
  const auto a = read_recorded_hashes(options.a), b = read_recorded_hashes(options.b);
  if (!a) return bad_input(a.errors(), options.json);
  if (!b) return bad_input(b.errors(), options.json);
  const RecordedDivergence found = first_divergence(a.value(), b.value());
  const RankDivergence of_a = divergence_of_ranks(a.value()), of_b = divergence_of_ranks(b.value());
  const bool differ = found.step != 0 || of_a.step != 0 || of_b.step != 0;
  const int code = differ ? kExitFail : found.steps == 0 ? kExitNothing : kExitPass;
  try {
    if (!options.json.empty()) {
      Json json = head(code);
      json["verdict"] = code == kExitNothing ? Json(nullptr) : Json(differ ? "fail" : "pass");
      json["a"] = options.a;
      json["b"] = options.b;
      json["recordings"] = {{"steps", found.steps},
                            {"tensors", found.tensors},
                            {"first", first_json(found)},
                            {"ranks_of_a", ranks_json(of_a)},
                            {"ranks_of_b", ranks_json(of_b)}};
      write_atomically(options.json, to_text(json));
    }
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
  const Style style(wants_color(options.color, STDOUT_FILENO));
  std::string text;
  if (!options.quiet) {
    text = fmt::format("lockstep {} ({})\n\n", lockstep_version(), lockstep_commit());
    const std::string details = (found.step != 0 ? first_text(found) : std::string()) +
                                ranks_text("A", of_a) + ranks_text("B", of_b);
    text += fmt::format("{}  A {}  B {}\n{}\n",
                        differ ? style.verdict("fail", "fail") : style.verdict("pass", "pass"),
                        options.a, options.b, details);
  }
  return print_result(text + recording_answer(found, code, style), code);
}

}  // namespace lockstep
