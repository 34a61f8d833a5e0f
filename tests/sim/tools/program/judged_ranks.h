#pragma once

#include <string>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep::judged {

// Two steps of three ranks, and of one device, that agree in everything: what tests change.

using Ranks = std::vector<ProgramRank>;

inline Sketch sketch_of(double scale) {
  return std::vector<double>{scale, -2 * scale, scale, scale, 3 * scale};
}

inline ProgramStep made_step(const std::vector<std::string>& samples) {
  ProgramStep step;
  step.ddp_forwards = step.forwards = 1;
  step.line = "train.py:9";
  step.names = {"weight", "bias"};
  step.grad_hashes = {"g0", "g1"};
  step.param_hashes = {"p0", "p1"};
  step.samples = samples;
  step.lr = {0.1};
  step.options = {"0 lr=0.1"};
  step.grads = {sketch_of(1), sketch_of(0.5)};
  step.params = step.before = {sketch_of(4), sketch_of(2)};
  return step;
}

inline ProgramRank made_rank(int64_t rank, int64_t world) {
  ProgramRank made;
  made.rank = rank;
  made.world = world;
  made.ended = true;
  for (const std::string number : {"1", "2"}) {
    std::vector<std::string> samples;
    for (int64_t r = 0; r < (world == 1 ? 3 : 1); ++r)
      samples.push_back(number + "/" + std::to_string(world == 1 ? r : rank));
    made.steps.push_back(made_step(samples));
  }
  return made;
}

inline Ranks three() { return {made_rank(0, 3), made_rank(1, 3), made_rank(2, 3)}; }
inline ProgramRank one() { return made_rank(0, 1); }

// `change` is done to the second step of every rank.
template <class F>
Ranks changed(F change) {
  Ranks ranks = three();
  for (ProgramRank& rank : ranks) change(&rank.steps[1]);
  return ranks;
}

}  // namespace lockstep::judged
