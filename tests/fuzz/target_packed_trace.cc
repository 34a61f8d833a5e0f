#include "sim/analysis/pipeline_trace.h"
#include "tests/fuzz/fuzz.h"

// A trace as gzip packs it, damaged: what comes out is another text, or ends early, or has no end.
// Reading a bomb up to its limit takes a thousand times as long as anything else here; one input of
// 16 has the limit that users have.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const int64_t unpacked = fuzz::one_input_in(16, data, size) ? kUnpackedAlways : int64_t{1} << 17;
  const auto trace = read_pipeline_trace(file.holding(fuzz::text_of(data, size)), unpacked);
  if (!trace) fuzz::check_errors(trace.errors());
  return 0;
}
