#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "golden/replay.h"
#include "golden/sample_cache.h"
#include "golden/state.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The replay of a scenario whose ranks part (scenarios/local_steps.h): one model and optimizer for
// each rank, in one process. One thread.
class OwnStates {
 public:
  // `scenario` and `setup`, rank 0's, must outlive this object. All ranks start with its weights.
  OwnStates(const Scenario& scenario, const ReplayRule& rule, Setup& setup);

  // The whole of a step, update and averages included.
  void step(int64_t step);
  // The states of all ranks, rank after rank: world_size x layout.bytes.
  void copy(const StateLayout& layout, std::byte* out) const;

 private:
  Training& training(size_t rank) { return rank == 0 ? first_ : others_[rank - 1]; }
  void shared_gradients(int64_t step);
  void local_gradients(int64_t step);
  void average_parameters();

  const Scenario& scenario_;
  const ReplayRule rule_;
  const size_t world_size_;
  Training& first_;
  std::vector<Training> others_;
  SampleCache samples_;
  Replay replay_;  // of steps whose gradients are averaged: all ranks have the same weights then
};

}  // namespace lockstep
