#pragma once

#include "reducer/communicator.h"

namespace lockstep {

// Every process says which rank it is and how many it expects, before any connection is made: what
// does not fit is named at once instead of by a time-out. `process` (from 0) is what the launcher
// started it as, `processes` how many there are. Blocks until all have signed in or the deadline
// has passed. Throws CommError: rejected for the process that is wrong (it claims a rank that is
// another's, or expects another world size than most), peer_lost for all others then, timeout where
// one does not come, naming the first that is missing.
void sign_in(Store& store, const CommOptions& options, int64_t process, int64_t processes,
             Deadline deadline);

}  // namespace lockstep
