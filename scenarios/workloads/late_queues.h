#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace lockstep {

// The queues (streams) of emulated devices, all of which are late: what is put into one has not
// been done, as far as anybody can tell, before somebody has waited for it, by an event or on the
// host. So a wait that is missing shows in every run, not in one of a thousand. Only the order is
// kept here, as vector clocks: happens-before, as ThreadSanitizer has it, with queues for threads.
// No LibTorch. Thread-safe.
class LateQueues {
 public:
  // A piece of work: the count-th of a queue. Queue -1: done before everything.
  struct Mark {
    int64_t queue = -1;
    uint64_t count = 0;
  };
  // How much of each queue is known to have been done: an event.
  using Known = std::map<int64_t, uint64_t>;

  // The next piece of work of `queue`, which comes after all that the queue has waited for and that
  // this host thread knows.
  Mark put(int64_t queue);
  // Would what this thread puts into `queue` next come after `mark`?
  bool is_before(const Mark& mark, int64_t queue);
  // All that is in `queue` now, with what it has waited for; and a queue that waits for it.
  Known record(int64_t queue);
  void wait(int64_t queue, const Known& event);

  // This host thread waits: what was to be done on the host by then is done now.
  void wait_on_host(const Known& event);
  // `publish` changes memory of the host once a thread has waited for `mark`; it must not call
  // back.
  void on_host_after(const Mark& mark, std::function<void()> publish);

 private:
  struct Pending {
    Mark mark;
    std::function<void()> publish;
  };
  std::mutex mutex_;
  std::map<int64_t, Known> queues_;
  std::vector<Pending> pending_;
};

}  // namespace lockstep
