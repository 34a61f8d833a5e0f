#include "scenarios/base/text.h"
#include "sim/tools/explain/report.h"
#include "sim/tools/explain/trace_arrivals.h"
#include "tests/fuzz/fuzz.h"

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

}  // namespace

// A trace of torch.profiler, alone and beside one like it of another rank, some time later.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file;
  const auto trace = read_kineto_trace(file.holding(fuzz::text_of(data, size)));
  if (!trace) {
    fuzz::check_errors(trace.errors());
    return 0;
  }
  check_traces({trace.value()});
  KinetoTrace other = trace.value();
  other.rank = trace.value().rank + 1;
  for (TraceCall& call : other.calls) call.time = {call.time.begin_us + 7, call.time.end_us + 5};
  check_traces({trace.value(), other});
  return 0;
}
