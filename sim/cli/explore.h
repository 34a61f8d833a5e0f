#pragma once

#include <string>

#include "sim/cli/verbs.h"
#include "sim/explore/result.h"

namespace lockstep {

// Schedules of scenarios whose ranks are threads of one process, one running at a time.
struct ExploreOptions {
  Selection selection;
  ExploreSpec spec;  // its seed is the scenario's
  std::string json;
  std::string color = "auto";
  bool quiet = false;
};
int explore(const ExploreOptions& options);

}  // namespace lockstep
