#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/faults.h"
#include "scenarios/scenario.h"

namespace lockstep {

// When one fault of a scenario acts, and for how long: all its words looked up once, for whoever
// asks for many ranks and steps. Draws depend on seed, fault, rank and step alone. Refers to the
// scenario's fault.
class FaultMoments {
 public:
  FaultMoments(const Scenario& scenario, size_t index);

  const Fault& fault() const { return fault_; }
  std::optional<Phase> phase() const { return phase_; }
  std::optional<int64_t> bucket() const { return bucket_; }
  const std::string& layer() const { return layer_; }  // empty: of none
  std::optional<double> factor() const { return factor_; }

  // Does anything of it depend on the seed?
  bool draws() const { return probability_ < 1 || distribution_ != Distribution::constant; }

  // What is drawn from for one rank; worth keeping where many steps are asked for.
  struct OfRank {
    bool any = false;  // does it act on the rank at all?
    uint64_t acts = 0, duration = 0, second = 0;
  };
  OfRank of_rank(int64_t rank) const;
  // In this step, whatever its address within it.
  bool acts(const OfRank& of, int64_t rank, int64_t step) const;
  double duration_ms(const OfRank& of, int64_t step) const;  // 0 where the kind has none

 private:
  enum class Distribution { constant, uniform, pareto, lognormal };

  const Fault& fault_;
  std::optional<Phase> phase_;
  std::optional<int64_t> bucket_;
  std::string layer_;
  std::optional<double> factor_;
  FaultSteps steps_;
  int64_t ranks_ = 1, every_ = 0;  // 0: in every step
  double probability_ = 1;
  uint64_t seed_ = 0;
  Distribution distribution_ = Distribution::constant;
  double duration_ms_ = 0, spread_ = 0;
};

std::vector<FaultMoments> moments_of(const Scenario& scenario);

}  // namespace lockstep
