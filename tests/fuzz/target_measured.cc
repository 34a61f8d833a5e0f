#include "sim/calibrate/measured_collectives.h"
#include "tests/fuzz/fuzz.h"

// Measured collectives: nccl-tests' text, or our own result.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const auto table = measured_collectives_from(fuzz::text_of(data, size), "measured");
  if (!table) {
    fuzz::check_errors(table.errors());
    return 0;
  }
  CostModel cost;
  cost.tables = {table.value()};
  LOCKSTEP_CHECK(problems_of(cost).empty(), "a table that is out of range");
  (void)collective_ns(cost, table.value().operation, static_cast<int64_t>(size),
                      table.value().ranks);
  return 0;
}
