#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/calibrate/fit.h"

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

// The machine, and what it was fitted to.
std::string text_of_fit(const Fit& fit);
// In a line: of how many "run"s or "trace"s, and how far from them.
std::string answer_of_fit(const Fit& fit, int64_t count, const char* what);

}  // namespace lockstep
