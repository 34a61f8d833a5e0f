#include "sim/launch/protocol.h"
#include "sim/record/recorder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/kept_run.h"

// The events of a rank, and all that is derived from them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const fuzz::KeptRun& kept = fuzz::kept_run();
  const std::string path = records_path(kept.dir, 0);
  fuzz::leave(path, fuzz::text_of(data, size));
  (void)read_pulse(path);
  fuzz::judge_kept_run(kept.dir, {.intervals = fuzz::one_input_in(16, data, size),
                                  .simulation = fuzz::one_input_in(4, data, size)});
  return 0;
}
