#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/launch/event_loop.h"
#include "sim/launch/executor.h"
#include "sim/record/evidence.h"
#include "sim/tools/program/launch.h"

namespace lockstep {

// One run of a program as if it were one of ours: how its processes ended, in order, what its ranks
// recorded until then, and what each said that ended it. The judge's attribution reads it.

struct ProgramWatch {
  double limit_s = 600;
  double hang_after_s = 30;  // nothing new of any rank for so long, once all have met: a hang
};

struct ProgramGroup {  // of some of the ranks
  std::string name;    // PyTorch's
  std::vector<int64_t> ranks;
};

// What the agent of one rank knows beside its records.
struct ProgramRankFacts {
  bool met = false;         // it came out of init_process_group
  std::string torch, tap;   // "2.15.0"; "hooks", "functions"
  int64_t world = 0;        // as its group says
  int64_t timeout_ms = -1;  // of that group, as it was set
  std::string error, line;  // "ValueError: bad"; the program's own line "train.py:31"
  std::vector<ProgramGroup> groups;
  std::vector<std::string> stack;  // of a hung rank, innermost first: "train.py:31 step()"
};

struct ProgramRun {
  RunOutcome outcome;
  std::vector<ProgramRankFacts> ranks;
  std::vector<std::vector<int64_t>> acted;  // by fault: the ranks on which it did
  std::vector<int64_t> ended_by_program;    // by the process that had started them
  // It was ended at its limit while ranks were still at work: nothing failed, nothing is known.
  bool cut_off = false;
  std::string why;  // it could not be started
  int signal = 0;   // that interrupted us
};

// Blocks. No process of it is alive afterwards. `faults`: how many there are.
ProgramRun watch_program(const ProgramLaunch& launch, const ProgramWatch& watch, size_t faults,
                         Signals* signals);

// What a rank's error means, by the sentences of Gloo and c10d; `waits`: it was in a collective, or
// had not met the others yet. Anything that is not theirs is the program's own exception.
ErrorKind error_kind_of(const std::string& text, bool waits);

}  // namespace lockstep
