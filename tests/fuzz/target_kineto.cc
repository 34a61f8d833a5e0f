#include "scenarios/base/text.h"
#include "scenarios/parameter_list.h"
#include "scenarios/profiler/kineto_training.h"
#include "sim/calibrate/traced_runs.h"
#include "sim/tools/explain/report.h"
#include "sim/tools/explain/trace_arrivals.h"
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace {

using namespace lockstep;  // NOLINT

void check_traces(const std::vector<KinetoTrace>& traces) {
  SourcesRead read;
  for (const KinetoTrace& trace : traces) read.traces.push_back(share_of(trace));
  FlightFinding found;
  find_late_in_traces(traces, &read.traces, &found);
  const std::string text = explain_text(found, read);
  fuzz::promised(text == printable_lines(text), "nothing in the text steers a terminal");
  (void)explain_json(found, read, "");
  fuzz::promised(found.decided || found.guilty.empty(), "nobody is guilty where it is undecided");
  fuzz::promised(found.decided != !found.missing.empty(), "what is undecided says what is missing");
  for (const TraceShare& share : read.traces)
    fuzz::promised(!share.overlap_percent ||
                       (*share.overlap_percent >= 0 && *share.overlap_percent <= 100.001),
                   "overlap is a share of communication");
}

// What a scenario takes of it: a model, and its times.
void check_training(const KinetoTrace& trace) {
  const auto training = training_of(trace);
  if (!training) return fuzz::check_errors(training.errors());
  const GradientTimes times = gradient_times(training.value());
  fuzz::promised(times.ready_ms.size() == training.value().shapes.size(), "a time each");
  fuzz::promised(std::is_sorted(times.ready_ms.begin(), times.ready_ms.end()) &&
                     times.ready_ms.front() >= 0 && times.forward_ms.value_or(0) >= 0,
                 "times never fall");
  TracedRank rank{trace, training.value()};
  const auto alone = traced_run({rank});
  if (!alone) fuzz::check_errors(alone.errors());
  TracedRank other = rank;
  rank.trace.rank = 0;
  other.trace.rank = 1;
  rank.trace.world_size = other.trace.world_size = 2;
  const auto fit = fit_traces({rank, other}, 2);
  if (!fit) fuzz::check_errors(fit.errors());
}

}  // namespace

// A trace of torch.profiler, alone and beside one like it of another rank, some time later.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file;
  const std::string path = file.holding(fuzz::text_of(data, size));
  const auto trace = read_kineto_trace(path);
  if (!trace) {
    fuzz::check_errors(trace.errors());
    return 0;
  }
  check_traces({trace.value()});
  check_training(trace.value());
  if (const auto list = read_parameter_list(path); !list) fuzz::check_errors(list.errors());
  KinetoTrace other = trace.value();
  other.rank = trace.value().rank + 1;
  for (TraceCall& call : other.calls) call.time = {call.time.begin_us + 7, call.time.end_us + 5};
  check_traces({trace.value(), other});
  return 0;
}
