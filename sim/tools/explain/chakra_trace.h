#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/tools/explain/attribution.h"

namespace lockstep {

// What an execution trace of Chakra says of one rank: how long its nodes took and what they
// depend on, but not when they ran.
struct ChakraTrace {
  std::string file;
  int64_t nodes = 0, collectives = 0;
  // Of kernels where the trace has any, else of all nodes; without those whose time is not said.
  double compute_ms = 0, communication_ms = 0;
  bool timed = false;
};

// Is this the beginning of such a file? In JSON as Chakra's feeder reads it ("workload_graph"), and
// as PyTorch's ExecutionTraceObserver writes it ("schema": "...chakra..."); or in protobuf (.et).
bool is_chakra_head(std::string_view head);

// One file. JSON, packed by gzip or not, as a stream: memory does not grow with it. Bad input: no
// such trace, with the place; JSON that unpacks to more than 2 GiB, or protobuf of more than 1 GiB.
Expected<ChakraTrace> read_chakra_trace(const std::string& path);
// Of the content of such a file.
Expected<ChakraTrace> chakra_trace_of(const std::string& bytes, const std::string& path);

// What they hold, as evidence. `alone`: nothing else was read, so that nobody can be named.
void tell_chakra(const std::vector<ChakraTrace>& traces, bool alone, FlightFinding* finding);

}  // namespace lockstep
