#include "golden/stored.h"
#include "sim/report/run_text.h"
#include "sim/sweep/baseline.h"
#include "tests/fuzz/fuzz.h"

// Numbers that others left or printed: a stored golden result, losses, a published sweep.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const std::string& path = file.holding(fuzz::text_of(data, size));
  if (const auto golden = load_stored_golden(path))
    (void)to_text(golden.value());
  else
    fuzz::check_errors(golden.errors());
  if (const auto losses = load_published_losses(path); !losses) fuzz::check_errors(losses.errors());
  if (const auto reference = load_reference(path))
    (void)agreements(reference.value(), {});
  else
    fuzz::check_errors(reference.errors());
  return 0;
}
