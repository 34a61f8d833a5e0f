#include "sim/cli/conclude.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "sim/report/markdown.h"
#include "sim/report/terminal.h"

namespace lockstep {

int exit_code_of(const std::string& verdict) {
  if (verdict == "pass") return kExitPass;
  return verdict == "fail" ? kExitFail : kExitInconclusive;
}

void conclude(int signal, ResultDocument* document) {
  document->verdict = overall_verdict(document->runs);
  if (signal != 0 || (!document->errors.empty() && document->verdict == "pass"))
    document->verdict = "inconclusive";
  document->exit_code = signal != 0 ? 128 + signal : exit_code_of(document->verdict);
}

namespace {

int write_report(const char* option, const std::string& path, const std::string& text, int code) {
  try {
    write_atomically(path, text);
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: error: {} {}\n", option, error.what());
    return kExitBadInput;
  }
}

}  // namespace

int write_result(const std::string& path, const ResultDocument& document, int code) {
  return write_report("--json", path, to_text(document), code);
}

int report(const VerifyOptions& options, const ResultDocument& document) {
  for (const InputError& error : document.errors) fmt::print(stderr, "{}\n", to_text(error));
  int code = document.exit_code;
  if (!options.json.empty()) code = write_result(options.json, document, code);
  if (!options.markdown.empty())
    code = write_report("--markdown", options.markdown, verify_markdown(document), code);
  code = leave_ci_reports(options.ci, test_report(options.verb(), document), code);
  TerminalOptions terminal;
  terminal.quiet = options.quiet;
  terminal.verbose = options.verbose;
  terminal.metrics = options.metrics;
  terminal.explain = options.explain;
  terminal.color = wants_color(options.color, STDOUT_FILENO);
  return print_result(terminal_text(document, terminal), code);
}

void leave_result(const RunDirectory& directory, const ResultDocument& document) {
  try {
    write_atomically(directory.path() + "/result.json", to_text(document));
    directory.note_verdict(document.verdict);
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: warning: {}\n", error.what());
  }
}

}  // namespace lockstep
