#include "sim/launch/run_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/kept_run.h"

// ends.json of a kept run.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const fuzz::KeptRun& kept = fuzz::kept_run();
  fuzz::leave(ends_path(kept.dir), fuzz::text_of(data, size));
  fuzz::judge_kept_run(kept.dir, {.intervals = fuzz::one_input_in(16, data, size),
                                  .simulation = fuzz::one_input_in(4, data, size)});
  return 0;
}
