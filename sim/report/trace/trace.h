#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/launch/executor.h"

namespace lockstep {

// A run's collectives and phases in the formats of other tools. Each kind is a row of trace.cc and
// has a file of its own beside it, whose header says what is in it.

// "kineto", "flight_recorder", ...
std::vector<std::string> trace_kinds();

// What --trace and --trace-kind ask for.
struct TraceOptions {
  std::string path;             // empty: no trace
  std::string kind = "kineto";  // one of trace_kinds()
};

// Is this path to get a file of each rank? A folder, or what ends in a slash; else one file holds
// all ranks.
bool is_trace_folder(const std::string& path);

// Why traces of so many runs could not be written there, if so. Makes the folder, where it is one.
// Kinds whose readers take all that lies in a folder for one run's want an empty one.
std::optional<InputError> trace_error(const TraceOptions& options, size_t runs);

// The same of one run that is over, where that holds nothing of what the kind is made of: no rank
// came to a collective.
std::optional<InputError> trace_error(const TraceOptions& options, const RunOutcome& outcome);

// Of several runs each has a folder of its own, in their order: `index` of `runs`. A file is
// replaced in one step. Throws std::system_error.
void write_trace(const TraceOptions& options, const RunOutcome& outcome, size_t index = 0,
                 size_t runs = 1);

}  // namespace lockstep
