#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/scenario.h"
#include "scenarios/split.h"

namespace lockstep {

// How much of a rank's state after a step the scenario promises to be the same elsewhere.
enum class Agreement { nothing, parameters, all };

// Everything after every step, but
// * ranks that have no batch (join): theirs stays behind until the end of the epoch, when they get
//   the weights of the others;
// * reducer none, whose ranks part in step 1;
// * from the first step with local gradients on, where models are averaged: their parameters after
//   each average alone. Each rank still follows its own replay. No LibTorch.
class AgreementRule {
 public:
  // `scenario` must outlive this object.
  explicit AgreementRule(const Scenario& scenario);

  // Is it everything after every step, on every rank?
  bool is_simple() const { return !split_ && shared_steps_ == scenario_.steps; }

  // With the ranks of which most is promised, and with one device that trains on the whole batch.
  // Step 0: before the first.
  Agreement between_ranks(int64_t step, int64_t rank) const;
  // With the state that the replay golden has of this rank.
  Agreement with_replay(int64_t step, int64_t rank) const;
  // Of any rank in this step.
  Agreement most(int64_t step) const;

  // The last step after which at least so much of rank `rank` agrees with others; -1: none.
  int64_t last_step(int64_t rank, Agreement least) const;

  // One line for people; empty where it is simple.
  std::string text() const;

 private:
  Agreement of_batches(int64_t step, int64_t rank) const;

  const Scenario& scenario_;
  std::optional<Split> split_;
  int64_t shared_steps_;  // before the first after which ranks part
};

}  // namespace lockstep
