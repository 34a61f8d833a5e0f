#include <nlohmann/json.hpp>

#include "sim/analysis/pipeline_slowdown.h"
#include "sim/analysis/pipeline_trace.h"
#include "tests/fuzz/fuzz.h"

// A trace of a pipeline that others made, as text or packed.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto trace = read_pipeline_trace(file.holding(fuzz::text_of(data, size)));
  if (!trace) {
    fuzz::check_errors(trace.errors());
    return 0;
  }
  const auto slowdown = slowdown_of(trace.value());
  if (!slowdown)
    fuzz::check_errors(slowdown.errors());
  else
    (void)as_json(slowdown.value());
  return 0;
}
