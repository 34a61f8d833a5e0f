#include "sim/report/version.h"

#include "lockstep_commit.h"  // written by the build

namespace lockstep {

const char* lockstep_version() { return LOCKSTEP_VERSION; }
const char* lockstep_commit() { return LOCKSTEP_COMMIT; }

}  // namespace lockstep
