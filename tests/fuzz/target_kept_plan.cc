#include "sim/launch/protocol.h"
#include "sim/launch/run_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/kept_run.h"

// plan.json of a kept run, and all that is derived from it. ends.json belongs to it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const fuzz::KeptRun& kept = fuzz::kept_run();
  const std::string plan(fuzz::text_of(data, size));
  fuzz::leave(plan_path(kept.dir), plan);
  fuzz::leave(ends_path(kept.dir), fuzz::ends_for(plan));
  fuzz::judge_kept_run(kept.dir,
                       {.intervals = fuzz::one_input_in(16, data, size), .simulation = true});
  return 0;
}
