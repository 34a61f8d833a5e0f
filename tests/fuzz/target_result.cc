#include "sim/judge/judge.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/sweep/baseline.h"
#include "tests/fuzz/fuzz.h"

// What --json of an earlier invocation wrote: --baseline of verify and of sweep, and
// libraries.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const std::string& path = file.holding(fuzz::text_of(data, size));
  if (const auto earlier = EarlierResult::load(path))
    (void)earlier.value().beside(RunResult());
  else
    fuzz::check_errors(earlier.errors());
  if (const auto baseline = load_baseline(path))
    (void)judge(baseline.value(), "a", "b", 2, {}, 1);
  else
    fuzz::check_errors(baseline.errors());
  (void)libtorch_of(read_libraries(path));
  return 0;
}
