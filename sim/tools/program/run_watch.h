#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/launch/event_loop.h"
#include "sim/launch/executor.h"
#include "sim/tools/program/launch.h"
#include "sim/tools/program/rank_facts.h"

namespace lockstep {

// One run of a program as if it were one of ours: how its processes ended, in order, what its ranks
// recorded until then, and what each said that ended it. The judge's attribution reads it.

struct ProgramWatch {
  double limit_s = 600;
  double hang_after_s = 30;  // nothing new of any rank for so long, once all have met: a hang
};

struct ProgramRun {
  RunOutcome outcome;
  std::vector<ProgramRankFacts> ranks;
  std::vector<std::vector<int64_t>> acted;  // by fault: the ranks on which it did
  std::vector<int64_t> ended_by_program;    // by the process that had started them
  // It was ended at its limit while ranks were still at work: nothing failed, nothing is known.
  bool cut_off = false;
  bool deadlock = false;  // certainly: deadlock.h
  ProgramEnd end;         // how it went, in a word, whoever is to blame
  std::string why;        // it could not be started
  bool on_cpu = false;    // CUDA was asked for, and was the CPU
  std::string advice;     // what to try with one that asked in vain whether there are GPUs
  int signal = 0;         // that interrupted us
};

// Blocks. No process of it is alive afterwards. `faults`: how many there are.
ProgramRun watch_program(const ProgramLaunch& launch, const ProgramWatch& watch, size_t faults,
                         Signals* signals);

// What the ranks of a run that is over left in its folder: facts, records, the ends of their logs.
// Puts right what is known of how they ended.
void read_ranks(const ProgramLaunch& launch, size_t faults, ProgramRun* run);

}  // namespace lockstep
