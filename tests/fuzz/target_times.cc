#include <cmath>

#include "sim/tools/program/sweep_model.h"
#include "sim/tools/program/sweep_times.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep {
namespace {

// As of a traced run: what virtual time makes of it.
void model(const std::vector<ProgramTimes>& ranks) {
  const std::vector<TracedProgram> runs = {{1.0, ranks}};
  if (!why_not_simulated(runs).empty()) return;
  const auto made = program_model({&runs[0]}, {"train"}, 2);
  if (!made) return fuzz::check_errors(made.errors());
  for (const LayerTime& layer : made.value().layers)
    fuzz::promised(layer.backward_ms >= 0, "no gradient comes before the one ahead of it");
  fuzz::promised(first_bucket_bytes(runs, 0.5) > 0, "a bucket has room for something");
}

}  // namespace
}  // namespace lockstep

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
  model(ranks);
  const RunNumbers numbers = numbers_of(ranks);
  fuzz::promised(std::isfinite(numbers.step_ms) && numbers.step_ms >= 0, "a step takes its time");
  return 0;
}
