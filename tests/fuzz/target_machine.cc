#include <nlohmann/json.hpp>

#include "sim/des/machine_model.h"
#include "tests/fuzz/fuzz.h"

// A machine to simulate on.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto machine = read_machine_model(file.holding(fuzz::text_of(data, size)));
  if (!machine)
    fuzz::check_errors(machine.errors());
  else
    (void)to_text(machine.value(), nlohmann::ordered_json());
  return 0;
}
