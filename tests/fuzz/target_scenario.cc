#include "scenarios/parse/suite.h"
#include "sim/plan/plan.h"
#include "tests/fuzz/fuzz.h"

// A scenario's text, checked, expanded and planned.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto read = load_scenario_file(file.holding(fuzz::text_of(data, size)), {});
  if (!read) {
    fuzz::check_errors(read.errors());
    return 0;
  }
  const auto plans = make_plans(read.value());
  if (!plans) fuzz::check_errors(plans.errors());
  return 0;
}
