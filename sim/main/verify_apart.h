#pragma once

#include <string>
#include <vector>

#include "scenarios/base/verdict.h"

namespace lockstep {

// What `verify` says of a scenario that a test runs.
struct ApartVerdict {
  // The worst of its runs as observed, whatever the scenario expects; input that is wrong is
  // inconclusive too.
  Verdict verdict = Verdict::inconclusive;
  // Every run passed a lane that compares it with one device (all but replica), whose control was
  // detected.
  bool against_one_device = false;
  std::vector<std::string> causes;    // of the first divergence of each run that has one
  std::vector<std::string> findings;  // one of each run that did not pass, and of each error
};

// Runs a scenario file, or JSON text (begins with '{'), in a process of its own: this program once
// more, with the models, data sets, reducers and hooks that it registers. Its main must be
// lockstep::run_tests() or begin with serve_tests(). `words`: further ones of verify's command line
// ("--set", "/world_size=3"). Blocks until the runs have ended, each by its own deadlines, an hour
// at most. Never throws for what a scenario does.
ApartVerdict verify_apart(const std::string& scenario, const std::vector<std::string>& words = {});

// Where this process was started by verify_apart(), or as a worker: does that and does not return.
void serve_tests(int argc, char** argv);

}  // namespace lockstep
