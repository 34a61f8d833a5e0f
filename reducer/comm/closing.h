#pragma once

#include <string>

#include "reducer/comm/comm_thread.h"
#include "reducer/communicator.h"

namespace lockstep {

// Blocks until all ranks of the group have called this or the deadline has passed. A Gloo context
// that is torn down earlier takes data with it that slow peers have not read yet.
void wait_until_all_close(Store& store, const std::string& prefix, int64_t world_size,
                          Deadline deadline) noexcept;

// Waits until the thread has run what was posted so far; false past the deadline.
bool drained(CommThread& thread, Deadline deadline) noexcept;

// Says that this rank closes without waiting, after a failure: nobody needs to wait for it.
void close_without_waiting(Store& store, const std::string& prefix) noexcept;

}  // namespace lockstep
