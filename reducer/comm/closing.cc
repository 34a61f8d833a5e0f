#include "reducer/comm/closing.h"

#include <exception>
#include <memory>

#include "reducer/comm/pending_work.h"

namespace lockstep {

void wait_until_all_close(Store& store, const std::string& prefix, int64_t world_size,
                          Deadline deadline) noexcept {
  try {
    if (store.add(prefix + "closing", 1) == world_size) store.set(prefix + "closed", "1");
    store.get(prefix + "closed", deadline);
  } catch (const std::exception&) {
    // Past the deadline, or the store is gone: a peer has failed, there is nobody to wait for.
  }
}

bool drained(CommThread& thread, Deadline deadline) noexcept {
  auto last = std::make_shared<PendingWork>("close", deadline);
  thread.post([last] { last->complete(); });
  return last->ends_by(deadline);
}

void close_without_waiting(Store& store, const std::string& prefix) noexcept {
  try {
    store.set(prefix + "closed", "1");
  } catch (const std::exception&) {
    // The store is gone, and with it everyone who would have waited.
  }
}

}  // namespace lockstep
