#include "sim/cli/execution.h"

#include <unistd.h>

#include <exception>

#include "scenarios/base/clock.h"
#include "sim/cli/conclude.h"
#include "sim/cli/runs.h"
#include "sim/launch/executor.h"

namespace lockstep {

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
    document.runs = runs.take();
    document.errors.insert(document.errors.end(), runs.problems().begin(), runs.problems().end());
  }
  document.libraries = read_libraries(out_dir + "/libraries.json");
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  conclude(signal, &document);
  return document;
}

}  // namespace lockstep
