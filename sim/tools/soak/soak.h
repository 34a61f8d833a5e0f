#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/verbs.h"
#include "sim/tools/soak/ledger.h"

namespace lockstep {

// Runs slices of seeds until the time is over, each as a process of its own: what ends it ends one
// slice.

struct SoakOptions {
  double hours = 1;
  int64_t slices = 0;           // at most so many; 0: as many as the time allows
  std::vector<SoakWork> works;  // those that are run, in turn
  uint64_t seed = 1;            // the first of all machines
  Shard shard;                  // of seeds
  std::string folder;           // ledger and failures; exists
  int64_t jobs = 0;             // 0: as the verbs choose
  std::string program;          // lockstep itself
  double slice_limit_s = 1800;  // a slice that takes longer is broken off, and counts as broken
};

// The slice of `work` that comes after those that the ledger has: seeds that no other machine of
// the soak takes, and no earlier slice took.
SoakSlice next_slice(const SoakOptions& options, const std::vector<SoakSlice>& ledger,
                     SoakWork work);

struct SoakEnd {
  std::vector<SoakSlice> slices;  // of this call
  std::string stopped;            // why it ended early; empty: the time was over
  int signal = 0;
};

// Blocks. Ledger lines are written as slices end; of each failure the scenario is in
// FOLDER/failures, of a slice that broke down the log. `say` is told before each slice.
// Throws std::system_error where files cannot be written.
SoakEnd soak(const SoakOptions& options, const std::vector<SoakSlice>& ledger,
             const std::function<void(const SoakSlice& next, const std::vector<SoakSlice>&)>& say);

}  // namespace lockstep
