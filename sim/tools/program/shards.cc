#include "sim/tools/program/shards.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep {
namespace {

using Steps = std::vector<ProgramStep*>;  // one of each rank

// Of those that there are: a rank without rows of a parameter may have no gradient of it. `all`:
// what is missing is not finite, and neither is the whole.
Sketch sum_of(const Steps& steps, std::vector<Sketch> ProgramStep::*list, size_t i, bool all) {
  Sketch sum;
  for (const ProgramStep* step : steps) {
    const Sketch& part = (step->*list)[i];
    if (!part && all) return std::nullopt;
    if (!part) continue;
    if (!sum) sum = std::vector<double>(part->size(), 0.0);
    for (size_t at = 0; at + 1 < part->size(); ++at) (*sum)[at] += (*part)[at];
    sum->back() = std::hypot(sum->back(), part->back());
  }
  return sum;
}

void join_sketches(const Steps& steps, std::vector<Sketch> ProgramStep::*list, size_t i, bool all) {
  for (const ProgramStep* step : steps)
    if ((step->*list).size() <= i) return;  // not recorded of this step
  const Sketch sum = sum_of(steps, list, i, all);
  for (ProgramStep* step : steps) (step->*list)[i] = sum;
}

void join_hashes(const Steps& steps, std::vector<std::string> ProgramStep::*list, size_t i) {
  std::string all;
  for (const ProgramStep* step : steps) all += (step->*list)[i];
  for (ProgramStep* step : steps) (step->*list)[i] = all;
}

// Of the ranks that hold one copy of the whole.
void join_copy(const Steps& steps) {
  const ProgramStep first = *steps[0];
  for (ProgramStep* step : steps) step->shard_grads = step->grads;
  for (size_t i = 0; i < first.names.size(); ++i) {
    const auto& shards = first.shards;
    if (std::find(shards.begin(), shards.end(), first.names[i]) == shards.end()) continue;
    join_sketches(steps, &ProgramStep::before, i, true);
    join_sketches(steps, &ProgramStep::grads, i, false);
    join_sketches(steps, &ProgramStep::params, i, true);
    join_hashes(steps, &ProgramStep::grad_hashes, i);
    join_hashes(steps, &ProgramStep::param_hashes, i);
  }
}

void join_step(const Steps& steps) {
  std::map<int64_t, Steps> copies;
  for (ProgramStep* step : steps) {
    if (step->names != steps[0]->names || step->shards != steps[0]->shards) return;
    copies[step->copy].push_back(step);
  }
  for (const auto& [number, own] : copies) join_copy(own);
}

}  // namespace

void join_shards(std::vector<ProgramRank>* ranks) {
  size_t count = ranks->empty() ? 0 : ranks->front().steps.size();
  for (const ProgramRank& rank : *ranks) count = std::min(count, rank.steps.size());
  for (size_t step = 0; step < count; ++step) {
    Steps steps;
    for (ProgramRank& rank : *ranks) steps.push_back(&rank.steps[step]);
    if (!steps[0]->shards.empty()) join_step(steps);
  }
}

}  // namespace lockstep
