#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/scenario.h"
#include "scenarios/split.h"
#include "sim/plan/plan.h"

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

// How often states are compared (scenario key `compare_every`). What is skipped is the copy, the
// hashes and the comparison of the whole state; golden runs compute every step all the same.

// Parameters from which on a scenario that does not say compares every tenth step.
constexpr int64_t kLargeModelElements = 10'000'000;

// What the scenario says; 0: by the model's size, and 1 where something needs every step: ranks
// that do not agree after all of them, lane rounding, a resume, mutants. `plan`: lanes are chosen.
int64_t comparison_interval(const RunPlan& plan);

// Of a scenario that says: why that cannot be, or empty.
std::string why_every_step(const Scenario& scenario);

// Is the state after this step compared? start_step: the one that the pass goes on from; >= it.
bool is_compared(const RunPlan& plan, int64_t start_step, int64_t step);

// Comparisons before that of `step`, itself compared. The one at start_step is number 0.
int64_t comparison_number(const RunPlan& plan, int64_t start_step, int64_t step);

}  // namespace lockstep
