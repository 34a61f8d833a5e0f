#include "sim/record/event.h"

namespace lockstep {

const char* to_word(Lane lane) {
  switch (lane) {
    case Lane::replica:
      return "replica";
    case Lane::replay:
      return "replay";
    case Lane::float64:
      return "float64";
    case Lane::rounding:
      return "rounding";
    case Lane::exact:
      return "exact";
    case Lane::communication:
      return "communication";
    case Lane::one_device:
      return "one_device";
  }
  return "unknown";
}

const char* to_word(Check check) {
  switch (check) {
    case Check::manifest:
      return "manifest";
    case Check::absent_gradients:
      return "absent_gradients";
    case Check::aliasing:
      return "aliasing";
    case Check::checkpoint:
      return "checkpoint";
    case Check::samples:
      return "samples";
    case Check::batch:
      return "batch";
    case Check::accumulation:
      return "accumulation";
  }
  return "unknown";
}

}  // namespace lockstep
