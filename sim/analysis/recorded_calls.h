#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/element_type.h"
#include "sim/analysis/group_table.h"
#include "sim/launch/executor.h"
#include "sim/record/recorder.h"

namespace lockstep {

// A collective as one rank called it. Unlike Collective of sim/analysis/timeline.h it says nothing
// of the others, so that what ranks called differently stays different.
struct RecordedCall {
  uint32_t sequence = 0;        // counts all of a rank in its group, alike on all ranks
  std::optional<size_t> group;  // its place in GroupTable::groups; nothing: of all ranks
  std::string operation;        // "all_reduce"
  int64_t bucket = -1, step = 0;
  const ElementType* type = nullptr;  // null: a number that is no type
  // At this rank; none of a barrier. Nothing where that is not known: what comes out of a program's
  // all_to_all may be uneven, and of its scatter or gather the one that it is from, or for, may not
  // have been recorded.
  std::optional<int64_t> elements_in = 0, elements_out = 0;
  Phase phase{};
  int64_t called_ns = 0;
  std::optional<int64_t> started_ns;  // it left the rank's queue for the wire
  std::optional<int64_t> ended_ns;    // nothing: it failed, or had not ended when the rank did
};

// "all_reduce"; null of a number that is no operation. A program's "reduce", which no communicator
// of ours has, is one more than those of reducer/probe.h.
const char* word_of_call(uint8_t operation);

// Of a rank's primary run, ascending by sequence, of all ranks alone. Where a rank recorded when
// collectives leave its queue, one without that has not started; elsewhere all start when they are
// called. What is no operation (a damaged record) is left out.
std::vector<RecordedCall> recorded_calls(const RankRecords& records, int64_t world_size);

// The same and those of the groups of `groups`, which are the run's; where there are any, in the
// order in which the rank called them.
std::vector<RecordedCall> recorded_calls(const RunOutcome& outcome, const GroupTable& groups,
                                         size_t rank);

}  // namespace lockstep
