#include "reducer/communicator.h"

#include "scenarios/base/check.h"

namespace lockstep {

const char* to_word(CommFailure failure) {
  switch (failure) {
    case CommFailure::timeout:
      return "timeout";
    case CommFailure::peer_lost:
      return "peer_lost";
    case CommFailure::rejected:
      return "rejected";
    case CommFailure::closed:
      return "closed";
  }
  LOCKSTEP_CHECK(false, "unknown CommFailure");
}

}  // namespace lockstep
