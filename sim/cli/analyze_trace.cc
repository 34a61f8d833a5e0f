#include <unistd.h>

#include <nlohmann/json.hpp>

#include "sim/cli/conclude.h"
#include "sim/cli/verbs.h"
#include "sim/judge/foreign/read_trace.h"
#include "sim/judge/foreign/slowdown.h"
#include "sim/report/pipeline_document.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

InputErrors in_file(InputErrors errors, const std::string& file) {
  for (InputError& error : errors) error.file = file;
  return errors;
}

}  // namespace

int analyze_trace(const AnalyzeOptions& options) {
  const std::string& file = options.folder;
  if (!options.trace.empty() || options.metrics)
    return bad_input(
        {option_error("--trace and --metrics take a run directory, and " + file + " is a file")},
        options.json);
  const auto trace = read_pipeline_trace(file);
  if (!trace) return bad_input(trace.errors(), options.json);
  auto slowdown = slowdown_of(trace.value());
  if (!slowdown) return bad_input(in_file(slowdown.errors(), file), options.json);
  PipelineDocument document;
  document.file = file;
  document.steps = trace.value().steps;
  document.dp_ranks = trace.value().dp_ranks;
  document.stages = trace.value().stages;
  document.ops = static_cast<int64_t>(trace.value().ops.size());
  document.slowdown = std::move(slowdown.value());
  try {
    if (!options.json.empty()) write_atomically(options.json, to_text(as_json(document)));
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(pipeline_text(document, style), kExitPass);
}

}  // namespace lockstep
