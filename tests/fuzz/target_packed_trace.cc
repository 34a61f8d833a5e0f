#include "sim/analysis/pipeline_trace.h"
#include "tests/fuzz/fuzz.h"

// A trace as gzip packs it, damaged: what comes out is another text, or ends early, or has no end.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto trace = read_pipeline_trace(file.holding(fuzz::text_of(data, size)));
  if (!trace) fuzz::check_errors(trace.errors());
  return 0;
}
