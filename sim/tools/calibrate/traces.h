#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// A machine from traces of torch.profiler (sim/calibrate/traced_runs.h): of all ranks of a training
// over Gloo its links, too; of others these are `machine`'s.
struct TracesOptions {
  std::vector<std::string> files;
  std::string machine;  // a file or a word; empty: the traces tell its links
  std::string out;      // the machine file; empty: standard output shows it
  int64_t cores = 0;    // of the host; 0: of this one
  bool quiet = false;
};
int calibrate_on_traces(const TracesOptions& options);

}  // namespace lockstep
