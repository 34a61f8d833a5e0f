#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// How a run that lockstep_record.py recorded came to its end, from the records of its ranks alone:
// nobody saw their processes.

struct RecordedEnd {
  enum class Kind : uint8_t {
    whole,       // all ranks came to their end, after the same number of steps
    unfinished,  // a rank has no end, and nothing shows that it failed: killed, or still running
    failed       // a rank ended with an error, or others waited in vain for one
  };
  enum class How : uint8_t { finished, error, cut };
  struct Rank {
    How how = How::cut;
    int64_t last_step = 0;  // that it ended
    int64_t step = 0;       // of its last event
    Phase phase{};
    int64_t last_ns = 0;
    std::optional<int64_t> error_ns;
  };
  // What the others waited in.
  struct Meeting {
    int64_t step = 0;
    Phase phase{};
    std::optional<int64_t> bucket;  // nothing: no bucket's, as the broadcast of buffers in forward
    std::vector<int64_t> waited;    // who had come
    std::vector<int64_t> absent;    // who never came
    std::vector<int64_t> late;  // who came when others had given up; none, where some never came
    int64_t waited_ns = 0;      // the longest, until somebody gave up; 0: not known
    int64_t late_ns = 0;        // from the first who came to the last who was late
  };
  Kind kind = Kind::whole;
  std::vector<Rank> ranks;
  int64_t last_whole_step = 0;          // that all ranks ended
  std::optional<Meeting> meeting;       // nothing: nobody is known to have waited in vain
  std::optional<int64_t> failed_first;  // whose error was the first, where there is no meeting
};

RecordedEnd end_of_recording(const RunOutcome& outcome);

// The same run without what came after a step.
RunOutcome until_step(RunOutcome outcome, int64_t step);

}  // namespace lockstep
