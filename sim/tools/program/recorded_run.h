#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/recording.h"
#include "sim/tools/program/result.h"
#include "sim/tools/program/verify.h"

namespace lockstep {

// What the runs of one verdict share.
struct ProgramSession {
  const ProgramVerification& options;
  std::string scratch;
  int64_t world;            // how many ranks they are of
  ProgramZygotes* zygotes;  // or none
  Signals* signals;
  bool* all_gpus;  // is one device told of as many GPUs as ranks have, since it ended with one?
};

// What one run of the program left.
struct RecordedRun {
  std::vector<ProgramRank> ranks;
  std::string why;      // there is nothing to judge
  bool exited = false;  // the reason is an exit code
  bool ended = false;   // by itself, whatever it left
  std::vector<std::string> log_tail;
  int signal = 0;
  double seconds = 0;
  std::string folder;
  std::optional<ProgramRunResult> failed;  // of a run that was watched: what `run` says of it
  bool certain = false;
};

// Which run: on several ranks, or on one device, that stands for `scale` of them.
struct RunOf {
  int64_t world = 1, scale = 1;
  bool in_double = true;
  std::vector<std::string> variables = {};
  bool watched = false;  // as `run` watches: who failed, if it does
};

// Runs it with the agent, and reads what its ranks left. `folder` is made. Blocks until all its
// processes ended, for --limit at the most; a run that left nothing to judge has the reason in
// `why`.
RecordedRun record_run(const ProgramSession& session, const std::string& folder, const RunOf& run);

// The first run of one device, which stands for `scale` ranks. Some scripts want more than one GPU.
RecordedRun record_alone(const ProgramSession& session, const std::string& folder, int64_t scale);

// Did one device note of which samples a collate function of the script made its batches?
bool has_noted_batches(const std::string& folder);

double seconds_since(std::chrono::steady_clock::time_point begin);

// Is what a comm hook loses asked for?
bool judges_hook(const ProgramVerification& options);

}  // namespace lockstep
