#pragma once

#include <string>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// A fault or mutant that acted, from its receipt: for pictures, never for verdicts.
struct FaultMark {
  size_t rank = 0;
  int64_t time_ns = 0;  // on the clock of the rank's other events
  std::string name;     // "fault 0: stop"
  int32_t subject = 0;  // of its receipt
};

// Of the primary run, by rank and then in the order of its records.
std::vector<FaultMark> fault_marks(const RunOutcome& outcome);

// "fault 0: stop", "mutant 1: flip_bit" of a receipt's subject; "receipt 7" of one that the
// scenario does not know.
std::string receipt_name(const Scenario& scenario, int32_t subject);

// A run's timeline in Chrome's trace event format, for Perfetto, chrome://tracing and
// HolisticTraceAnalysis (HTA): a process for each rank, with tracks for steps and phases, compute
// and communication, an arrow from a bucket that is complete to its collective, and marks where
// faults and mutants acted. Times are microseconds since the run's first event.
//
// For HTA forward and backward are kernels of stream 7, collectives kernels of streams from 20 on,
// each with its launch, and steps are called ProfilerStep#N. Only steps that metrics are made of
// are so; the others are drawn, but are no kernels, so that HTA's overlap is ours.

// Is this path to get a file of each rank, rank-0.json, as HTA wants it? A folder, or what ends in
// a slash; else one file holds all ranks.
bool is_trace_folder(const std::string& path);

// Makes the folder, where it is one. Throws std::system_error; a file is replaced in one step.
void write_trace(const std::string& path, const RunOutcome& outcome);

}  // namespace lockstep
