#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/element_type.h"
#include "sim/record/recorder.h"

namespace lockstep {

// A collective as one rank called it. Unlike Collective of sim/analysis/timeline.h it says nothing
// of the others, so that what ranks called differently stays different.
struct RecordedCall {
  uint32_t sequence = 0;  // counts all of a rank, alike on all ranks
  std::string operation;  // "all_reduce"
  int64_t bucket = -1, step = 0;
  const ElementType* type = nullptr;          // null: a number that is no type
  int64_t elements_in = 0, elements_out = 0;  // at this rank; none of a barrier
  Phase phase{};
  int64_t called_ns = 0;
  std::optional<int64_t> started_ns;  // it left the rank's queue for the wire
  std::optional<int64_t> ended_ns;    // nothing: it failed, or had not ended when the rank did
};

// Of a rank's primary run, ascending by sequence. Where a rank recorded when collectives leave its
// queue, one without that has not started; elsewhere all start when they are called. What is no
// operation (a damaged record) is left out.
std::vector<RecordedCall> recorded_calls(const RankRecords& records, int64_t world_size);

}  // namespace lockstep
