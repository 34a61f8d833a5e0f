#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scenarios/faults.h"
#include "scenarios/scenario.h"
#include "sim/fault/acts/moments.h"

namespace lockstep {

// One moment at which a fault acts on a rank.
struct Act {
  size_t index = 0;  // in Scenario::faults
  const Fault* fault = nullptr;
  double duration_ms = 0;  // drawn for this moment; 0 where the kind has none
};

// Which faults of a scenario act on one rank, and when. Draws depend on seed, fault, rank and step
// alone, so that virtual and real time see the same schedule. A plain function of its arguments; it
// refers to the scenario.
class FaultSchedule {
 public:
  FaultSchedule(const Scenario& scenario, int64_t rank)
      : FaultSchedule(std::make_shared<const std::vector<FaultMoments>>(moments_of(scenario)),
                      rank) {}
  // For many ranks and steps: the same moments for all.
  FaultSchedule(std::shared_ptr<const std::vector<FaultMoments>> moments, int64_t rank);

  // At the beginning of a phase ("backward") of a step; step 0: before the steps.
  std::vector<Act> at_phase(Phase phase, int64_t step) const;
  // At the collective of a bucket.
  std::vector<Act> at_bucket(int64_t bucket, int64_t step) const;
  // In the backward of a layer.
  std::vector<Act> at_layer(const std::string& layer, int64_t step) const;
  // Of this kind, whatever its address within the step.
  std::vector<Act> of_kind(FaultKind kind, int64_t step) const;
  // How many times as long compute takes in this step: the product of slow, imbalance, wandering.
  double slowdown(int64_t step) const;

 private:
  template <class Matches>
  std::vector<Act> matching(int64_t step, Matches matches) const;

  const std::shared_ptr<const std::vector<FaultMoments>> moments_;
  const int64_t rank_;
  std::vector<FaultMoments::OfRank> of_rank_;
};

}  // namespace lockstep
