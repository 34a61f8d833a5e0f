#include "sim/cli/conclude.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "scenarios/base/text.h"
#include "sim/cli/output_files.h"
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

int report(const VerifyOptions& options, const ResultDocument& document) {
  for (const InputError& error : document.errors) print_error(fmt::format("{}\n", to_text(error)));
  int code = document.exit_code;
  code = write_output("--json", options.json, code, [&] { return to_text(document); });
  code =
      write_output("--markdown", options.markdown, code, [&] { return verify_markdown(document); });
  code = leave_ci_reports(options.ci, test_report(options.verb(), document), code);
  TerminalOptions terminal;
  terminal.quiet = options.quiet;
  terminal.verbose = options.verbose;
  terminal.metrics = options.metrics;
  terminal.explain = options.explain;
  terminal.color = wants_color(options.color, STDOUT_FILENO);
  return print_result(terminal_text(document, terminal), code);
}

int nothing_selected(const std::string& why, const char* verb, const std::string& json,
                     const CiOptions& ci) {
  print_error(fmt::format("nothing selected: {}; exit {}\n", why, kExitNothing));
  ResultDocument document;
  document.machine = this_machine();
  document.exit_code = kExitNothing;
  const int code = write_output("--json", json, kExitNothing, [&] { return to_text(document); });
  return leave_ci_reports(ci, test_report(verb, document), code);
}

void leave_result(const RunDirectory& directory, const ResultDocument& document) {
  try {
    write_atomically(directory.path() + "/result.json", to_text(document));
    directory.note_verdict(document.verdict);
  } catch (const std::exception& error) {
    print_error(fmt::format("lockstep: warning: {}\n", error.what()));
  }
}

}  // namespace lockstep
