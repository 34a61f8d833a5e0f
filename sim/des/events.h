#pragma once

#include <cstdint>
#include <vector>

#include "sim/des/job.h"

namespace lockstep {

// Engine L0: a collective as the messages that it is made of, each an event. A rank sends its next
// message when its link is free, what must come before it has come, and its own part has started;
// messages of a round go one after another. The same answer as by rounds, and the only way to see
// how far a collective has come when somebody gives up.

// `messages` (may be null) is increased by those that arrived.
std::vector<int64_t> ends_by_events(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes, int64_t* messages);

// Messages that each rank has got by `at_ns`, of how many: partial progress.
struct MessageProgress {
  std::vector<int64_t> got;
  int64_t of = 0;
};
MessageProgress progress_at(const Job& job, const std::vector<int64_t>& starts, int64_t bytes,
                            int64_t at_ns);

}  // namespace lockstep
