#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What the agent (python/lockstep/agent) left of one rank of a program: facts, no judgement.

// Of a tensor: four projections on fixed signs, and its norm. Absent: there is no gradient, or it
// is not finite.
using Sketch = std::optional<std::vector<double>>;

struct ProgramStep {
  int64_t optimizer = 0, ddp_forwards = 0, forwards = 0;
  bool unsynced = false;  // the last forward through DDP was under no_sync()
  std::string line;       // of the user's script, where optimizer.step() stands
  std::vector<std::string> names, grad_hashes, param_hashes, samples;
  std::string buffer_hash, state_hash;
  std::vector<double> lr;
  std::vector<Sketch> before, grads, params;  // by parameter; before: of the first step alone
};

struct ProgramRank {
  int64_t rank = -1, world = 0;
  std::vector<ProgramStep> steps;
  bool ended = false, summed = false, dropout = false, draws = false;
  int64_t batch_norms = 0, backwards = 0, stale_epochs = 0;
};

// The bytes are a stranger's: bounded, every type checked.
Expected<ProgramRank> read_program_rank(const std::string& path);

}  // namespace lockstep
