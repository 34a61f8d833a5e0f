#include "reducer/probe.h"

#include "scenarios/base/error.h"

namespace lockstep {

bool is_operation(uint8_t code) {
  return code >= static_cast<uint8_t>(Operation::all_reduce) &&
         code <= static_cast<uint8_t>(Operation::barrier);
}

const char* to_word(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::broadcast:
      return "broadcast";
    case Operation::all_gather:
      return "all_gather";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::scatter:
      return "scatter";
    case Operation::gather:
      return "gather";
    case Operation::barrier:
      return "barrier";
  }
  LOCKSTEP_CHECK(false, "unknown Operation");
}

}  // namespace lockstep
