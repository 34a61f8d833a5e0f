#include "sim/cli/recordings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "sim/cli/conclude.h"
#include "sim/cli/output_files.h"
#include "sim/cli/recorded_tensors.h"
#include "sim/judge/judge.h"
#include "sim/judge/recorded_comparison.h"
#include "sim/judge/recorded_end.h"
#include "sim/launch/recording.h"
#include "sim/report/document.h"
#include "sim/report/metrics_table.h"
#include "sim/report/recorded_analysis.h"
#include "sim/report/recorded_comparison.h"
#include "sim/report/recorded_end.h"
#include "sim/report/trace.h"

namespace lockstep {
namespace {

// Nothing, or why these options cannot be honoured for recordings.
std::optional<InputError> refused_option(const CompareOptions& options) {
  for (const auto& [name, value] :
       {std::pair{"--key", &options.key}, {"--key-a", &options.a_key}, {"--key-b", &options.b_key}})
    if (!value->empty())
      return option_error(fmt::format("{} {}: recordings have no keys", name, *value),
                          "checkpoints, as those of record(..., keep_tensors=True) are");
  if (options.verbose) return option_error("--verbose is not there for recordings; take --json");
  return std::nullopt;
}

// Nothing, or why the numbers of these two cannot be compared in the way that was asked for.
std::optional<InputError> refused_pair(const CompareOptions& options, const RecordedHashes& a,
                                       const RecordedHashes& b) {
  const char* keep = "recordings of record(..., keep_tensors=True), with --rtol and --atol";
  const bool tensors = a.tensors && b.tensors;
  if (a.world_size != b.world_size && (!tensors || !options.has_tolerance()))
    return option_error(
        fmt::format("{} was recorded by {} {}, {} by {}: sums of other addends are rounded "
                    "otherwise, and {} have no tolerance",
                    options.a, a.world_size, plural(a.world_size, "rank"), options.b, b.world_size,
                    tensors ? "without --rtol or --atol numbers" : "hashes"),
        keep);
  if (options.has_tolerance() && !tensors)
    return option_error(
        fmt::format("{}: {} holds hashes alone, which have no tolerance",
                    options.rtol ? "--rtol" : "--atol", a.tensors ? options.b : options.a),
        keep);
  if (a.hash_version != b.hash_version && !options.has_tolerance())
    return file_error(options.b,
                      "was hashed in another way, by another version of lockstep_record.py",
                      "two recordings of one version");
  return std::nullopt;
}

int compare_by_hashes(const CompareOptions& options, const RecordedHashes& a,
                      const RecordedHashes& b) {
  const RecordedComparison comparison = compare_recordings(a, b);
  const int code = write_output("--json", options.json, exit_code_of(comparison.verdict),
                                [&] { return to_text(as_json(comparison, options.a, options.b)); });
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(
      recorded_comparison_text(comparison, options.a, options.b, options.quiet, style), code);
}

bool is_starved(const RunResult& result) {
  return result.straggler && result.straggler->late_class == kStarved;
}

std::string recorded_text(const RunOutcome& outcome, const RunResult& result,
                          const RecordedEnd& end, const Style& style) {
  const int64_t world_size = outcome.plan.scenario.world_size;
  std::string text =
      fmt::format("{}, recorded by {} {}\n{}", outcome.plan.scenario.name, world_size,
                  plural(world_size, "rank"), metrics_table(result, style));
  const std::string inconclusive = style.verdict("inconclusive", "inconclusive");
  if (end.kind != RecordedEnd::Kind::whole)
    return text + fmt::format("{}: the run {}: {}; exit {}\n", inconclusive,
                              end.kind == RecordedEnd::Kind::failed ? "failed" : "has no end",
                              to_text(end), kExitInconclusive);
  if (is_starved(result))
    text += fmt::format("{}: busy machine; exit {}\n", inconclusive, kExitInconclusive);
  return text;
}

}  // namespace

int analyze_recording(const AnalyzeOptions& options) {
  if (!options.svg.empty())
    return bad_input({option_error("--svg is not there for a recording; take --trace")});
  const auto outcome = read_recorded_run(options.folder);
  if (!outcome) return bad_input(outcome.errors(), options.json);
  const RecordedEnd end = end_of_recording(outcome.value());
  const bool whole = end.kind == RecordedEnd::Kind::whole;
  // Of a step that not all ranks ended, waits and transfers say nothing.
  const Timeline timeline =
      timeline_of(whole ? outcome.value() : until_step(outcome.value(), end.last_whole_step));
  RunResult result;
  result.metrics = metrics_of(timeline);
  // Who was slow before a run failed is not who made it fail.
  if (end.kind != RecordedEnd::Kind::failed) result.straggler = find_straggler(models_of(timeline));
  const bool known = whole && !result.metrics->steps.empty() && !is_starved(result);
  const int code = known ? kExitPass : kExitInconclusive;
  const int64_t world_size = outcome.value().plan.scenario.world_size;
  try {
    if (!options.trace.empty()) write_trace(options.trace, outcome.value());
    if (!options.json.empty())
      write_atomically(
          options.json,
          to_text(as_json(RecordedAnalysis{options.folder, world_size, code, result, end,
                                           options.metrics ? &timeline : nullptr})));
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(recorded_text(outcome.value(), result, end, style), code);
}

int compare_recordings(const CompareOptions& options) {
  if (auto refused = refused_option(options)) return bad_input({*refused}, options.json);
  const auto a = read_recorded_hashes(options.a), b = read_recorded_hashes(options.b);
  if (!a) return bad_input(a.errors(), options.json);
  if (!b) return bad_input(b.errors(), options.json);
  if (auto refused = refused_pair(options, a.value(), b.value()))
    return bad_input({*refused}, options.json);
  if (!options.has_tolerance()) return compare_by_hashes(options, a.value(), b.value());
  const auto document = compare_recorded_tensors(options, a.value(), b.value());
  if (!document) return bad_input(document.errors(), options.json);
  return report_comparison(options, document.value());
}

}  // namespace lockstep
