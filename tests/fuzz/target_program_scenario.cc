#include "sim/tools/program/scenario.h"
#include "tests/fuzz/fuzz.h"

// The text of a program's scenario, checked and expanded; nothing of it is run.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto read = load_program_scenario(file.holding(fuzz::text_of(data, size)), {});
  if (!read) fuzz::check_errors(read.errors());
  return 0;
}
