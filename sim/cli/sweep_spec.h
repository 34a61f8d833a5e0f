#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/cli/verbs.h"
#include "sim/sweep/design.h"
#include "sim/sweep/reference.h"
#include "sim/sweep/threshold.h"

namespace lockstep {

// What a sweep measures, of the command line, the scenario's key `sweep`, and defaults.
struct SweepSpec {
  std::optional<std::vector<double>> caps;  // nothing: auto
  std::vector<int64_t> worlds;              // empty: the scenario's
  std::vector<std::string> reducers;        // empty: the scenario's
  // JSON pointer -> values as JSON text.
  std::vector<std::pair<std::string, std::vector<std::string>>> vary;
  int64_t steps = 20, warmup = 5;
  std::optional<int64_t> rounds;  // nothing: as many as it takes to tell the caps apart
  std::string reference;          // path, or empty
};

// All errors at once. The file itself is checked where plans are made of it.
Expected<SweepSpec> sweep_spec(const SweepOptions& options);

// All combinations of the spec with `caps`, each with a plan of its own: errors of the scenario, of
// combinations that cannot be, and of a matrix that is not pinned.
Expected<std::vector<Cell>> sweep_cells(const SweepOptions& options, const SweepSpec& spec,
                                        const std::vector<double>& caps);

}  // namespace lockstep
