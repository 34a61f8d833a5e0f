#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/cli/conclude.h"
#include "sim/cli/verbs.h"
#include "sim/launch/files.h"
#include "sim/launch/stored_run.h"
#include "sim/report/metrics_table.h"
#include "sim/report/run_text.h"
#include "sim/report/terminal.h"
#include "sim/report/trace.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The folder itself, or the numbered ones of an invocation in it, in their order.
std::vector<std::string> run_folders(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  if (!fs::exists(folder + "/plan.json", error))
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (fs::exists(entry.path() / "plan.json", error)) found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found.empty() ? std::vector<std::string>{folder} : found;
}

// The command of the invocation, which knows the user's own words.
std::string again_of(const std::string& run_dir) {
  const std::string text = read_file((fs::path(run_dir).parent_path() / "result.json").string());
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("runs") || !document["runs"].is_array())
    return "";
  for (const auto& run : document["runs"])
    if (run.is_object() && run.value("again", nlohmann::json()).is_string() &&
        run.value("run_dir", nlohmann::json()) == run_dir)
      return run["again"];
  return "";
}

InputError refused(const std::string& folder, const std::string& why) {
  InputError error;
  error.message = fmt::format("{}: {}", folder, why);
  error.allowed = "a folder that verify or run left, with --keep or of a run not as expected";
  return error;
}

Expected<RunResult> analyze_run(const std::string& folder, const AnalyzeOptions& options) {
  std::string why;
  auto outcome = read_stored_run(folder, &why);
  if (!outcome) return refused(folder, why);
  const fs::path libraries = fs::path(folder).parent_path() / "libraries.json";
  outcome->libtorch = read_libraries(libraries.string()).torch;
  RunResult result = judge_run(*outcome, {.metrics = true, .intervals = options.metrics});
  if (const std::string again = again_of(folder); !again.empty()) result.again = again;
  if (!options.trace.empty()) write_trace(options.trace, *outcome);
  return result;
}

int report(const AnalyzeOptions& options, const ResultDocument& document) {
  const Style style(wants_color(options.color, STDOUT_FILENO));
  if (!options.json.empty()) write_atomically(options.json, to_text(document));
  std::string text;
  for (const RunResult& run : document.runs) text += run_text(run, style) + "\n";
  return print_result(text + answer_line(document), document.exit_code);
}

}  // namespace

int analyze(const AnalyzeOptions& options) {
  std::error_code ignored;
  const std::string folder =
      (fs::absolute(options.folder, ignored).lexically_normal() / "").parent_path().string();
  const std::vector<std::string> folders = run_folders(folder);
  if (!options.trace.empty() && folders.size() > 1)
    return bad_input({refused(options.folder, "--trace takes the folder of one run")});
  ResultDocument document;
  document.machine = this_machine();
  try {
    for (const std::string& run : folders) {
      auto result = analyze_run(run, options);
      if (!result) return bad_input(result.errors(), options.json);
      document.runs.push_back(std::move(result.value()));
    }
    document.seed = document.runs.front().seed;
    document.libraries =
        read_libraries((fs::path(folders.front()).parent_path() / "libraries.json").string());
    conclude(0, &document);
    return report(options, document);
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
}

}  // namespace lockstep
