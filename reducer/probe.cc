#include "reducer/probe.h"

#include "scenarios/base/error.h"

namespace lockstep {

bool is_operation(uint8_t code) {
  return code >= static_cast<uint8_t>(Operation::all_reduce) &&
         code <= static_cast<uint8_t>(Operation::all_to_all);
}

const char* to_word(Operation operation) {
  static constexpr const char* kWords[] = {"all_reduce",     "broadcast", "all_gather",
                                           "reduce_scatter", "scatter",   "gather",
                                           "barrier",        "all_to_all"};
  const auto code = static_cast<uint8_t>(operation);
  LOCKSTEP_CHECK(is_operation(code), "unknown Operation");
  return kWords[code - static_cast<uint8_t>(Operation::all_reduce)];
}

}  // namespace lockstep
