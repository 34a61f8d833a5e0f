#include "scenarios/layer_times.h"
#include "tests/fuzz/fuzz.h"

// Measured times of a model's layers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto profile = read_profile(file.holding(fuzz::text_of(data, size)));
  if (!profile) {
    fuzz::check_errors(profile.errors());
    return 0;
  }
  (void)problem_with(profile.value(), Scenario(), ModelManifest());
  fuzz::promised(static_cast<bool>(profile_from(to_text(profile.value()), "again")),
                 "a profile that was read and written again is one");
  return 0;
}
