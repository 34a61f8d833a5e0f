#include "sim/tools/explain/chakra_trace.h"
#include "tests/fuzz/explained.h"
#include "tests/fuzz/fuzz.h"

// An execution trace of Chakra, in JSON or protobuf.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto trace = read_chakra_trace(file.holding(fuzz::text_of(data, size)));
  if (!trace) {
    fuzz::check_errors(trace.errors());
    return 0;
  }
  fuzz::promised(trace.value().collectives <= trace.value().nodes, "collectives are nodes");
  fuzz::promised(trace.value().compute_ms >= 0 && trace.value().communication_ms >= 0,
                 "no time is negative");
  JobEvidence job;
  job.chakra = {trace.value(), trace.value()};
  fuzz::check_explained(job);
  return 0;
}
