#include "sim/cli/execution.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
#include "sim/cli/outputs.h"
#include "sim/launch/executor.h"
#include "sim/report/terminal.h"

namespace lockstep {

void conclude(int signal, ResultDocument* document) {
  Verdict verdict = overall_verdict(document->runs);
  if (signal != 0 || (!document->errors.empty() && verdict == Verdict::pass))
    verdict = Verdict::inconclusive;
  document->verdict = verdict;
  document->exit_code = signal != 0 ? 128 + signal : exit_code_of(verdict);
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
  terminal.style = style_of(options.color, STDOUT_FILENO);
  const std::string text = terminal_text(document, terminal);
  code = write_page(options.html, code, [&] {
    return HtmlPage{options.verb(), text, to_text(document), document.timelines};
  });
  return print_result(text, code);
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
    if (document.verdict) directory.note_verdict(*document.verdict);
  } catch (const std::exception& error) {
    print_error(fmt::format("lockstep: warning: {}\n", error.what()));
  }
}

ResultDocument execute_selected(const VerifyOptions& options,
                                const std::vector<SelectedFile>& files, const std::string& worker,
                                const std::string& out_dir, const EarlierResult* earlier) {
  ResultDocument document;
  document.machine = this_machine();
  const int64_t start_ns = now_ns();
  int signal = 0;
  {
    Runs runs(options, files, earlier);
    document.seed = runs.plans().front().scenario.seed;
    try {
      signal = execute(
          runs.plans(),
          {.out_dir = out_dir,
           .worker_program = worker,
           .jobs = options.jobs,
           .fresh_processes = options.fresh_processes,
           .keep_all = options.keep,
           .enough = [&] { return runs.enough(); }},
          [&](size_t index, RunOutcome outcome) { return runs.done(index, std::move(outcome)); });
    } catch (const std::exception& error) {
      document.errors.push_back(option_error(error.what()));
    }
    document.not_run = runs.not_run();
    document.timelines = runs.timelines();
    document.runs = runs.take();
    document.errors.insert(document.errors.end(), runs.problems().begin(), runs.problems().end());
  }
  document.libraries = read_libraries(out_dir + "/libraries.json");
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  conclude(signal, &document);
  return document;
}

}  // namespace lockstep
