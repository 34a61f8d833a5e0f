#pragma once

#include <string>
#include <vector>

#include "sim/collective/rank_file.h"
#include "sim/collective/spec.h"
#include "sim/sweep/statistics.h"

namespace lockstep {

// One communicator at one size, all ranks together.
struct CollectiveRow {
  size_t group = 0;               // place in spec.groups
  int64_t bytes = 0;              // S of the formulas: of the whole
  int64_t count = 0;              // elements that a rank passes: of its part where ranks have parts
  Estimate time_ns;               // median of the iterations, with its 95 % interval
  double algbw_gb_s = 0;          // S / time, 10^9 bytes a second
  double busbw_gb_s = 0;          // algbw x bus_factor()
  int64_t wrong = 0;              // elements of all ranks in all iterations
  int64_t results = 0;            // tensors that were compared bit for bit
  std::vector<int64_t> times_ns;  // of the iterations, in order
};

struct CollectiveResult {
  std::vector<CollectiveRow> rows;  // by communicator, then size
  int64_t wrong = 0, results = 0;
  // An element of rank 0 was damaged on purpose, once: has anybody seen it?
  std::string control = "not_run";  // detected | missed | not_run
};

// Rows that every rank has finished. An iteration takes from when the last rank has entered the
// collective to when it has ended on all: what the glossary calls transfer.
CollectiveResult collective_result(const CollectiveSpec& spec, const std::vector<RankFile>& ranks);

// The mean of busbw over the sizes of a communicator, as nccl-tests prints it last; 0 without any.
double average_busbw(const CollectiveResult& result, size_t group);

}  // namespace lockstep
