#include <cmath>

#include "sim/tools/program/sweep_times.h"
#include "tests/fuzz/fuzz.h"

// What a rank of `lockstep sweep -- COMMAND` leaves of its steps: the same of two ranks.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto read = read_program_times(file.holding(fuzz::text_of(data, size)));
  if (!read) {
    fuzz::check_errors(read.errors());
    return 0;
  }
  const std::vector<ProgramTimes> ranks = {read.value(), read.value()};
  if (!why_not_measured(ranks, 5).empty()) return 0;
  const RunNumbers numbers = numbers_of(ranks);
  fuzz::promised(std::isfinite(numbers.step_ms) && numbers.step_ms >= 0, "a step takes its time");
  return 0;
}
