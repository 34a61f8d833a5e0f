#include "sim/tools/explain/log_source.h"
#include "sim/tools/explain/source_kind.h"
#include "tests/fuzz/explained.h"

// torchelastic's error.json of rank 1, alone in what a job left.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const std::string text(fuzz::text_of(data, size));
  (void)kind_of("error.json", std::string_view(text).substr(0, kKindBytes));
  auto log = error_file_of(text, "error.json", 1);
  if (!log) {
    fuzz::check_errors(log.errors());
    return 0;
  }
  JobEvidence job;
  job.logs = 1;
  for (LogEvent& event : log.value().events) job.events.push_back(std::move(event));
  fuzz::check_explained(job);
  return 0;
}
