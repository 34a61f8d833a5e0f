#include "sim/tools/program/judge.h"

namespace lockstep {

bool replica_control_fails(std::vector<ProgramRank> ranks) {
  if (ranks.size() < 2 || ranks[1].steps.empty()) return false;
  auto& hashes = ranks[1].steps.back().param_hashes;
  if (hashes.empty() || hashes.back().empty()) return false;
  hashes.back().back() ^= 1;
  return judge_replicas(ranks).verdict == Verdict::fail;
}

bool one_device_control_fails(std::vector<ProgramRank> ranks, ProgramRank one) {
  if (one.steps.empty() || ranks.empty()) return false;
  ProgramStep& last = one.steps.back();
  for (auto* sketches : {&last.grads, &last.params}) {
    const bool by_gradients = last.within_step == 0 && !last.by_hand;
    if (sketches == &last.params && by_gradients) continue;
    for (Sketch& one_of_them : *sketches)
      if (one_of_them)
        for (double& value : *one_of_them) value *= 1.001;
  }
  // It is about numbers: what else might leave it undecided is out of its way.
  for (ProgramRank& rank : ranks) {
    rank.draws = false;
    for (ProgramStep& step : rank.steps) {
      step.samples.clear();
      step.loaded_drawn.clear();
    }
  }
  for (size_t step = 0; step < one.steps.size(); ++step) {
    one.steps[step].samples = {"one"};
    one.steps[step].loaded_drawn.clear();
    if (step < ranks[0].steps.size()) ranks[0].steps[step].samples = {"one"};
  }
  one.draws = false;
  return judge_one_device(ranks, one).verdict == Verdict::fail;
}

}  // namespace lockstep
