#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/base/median.h"
#include "sim/analysis/timeline.h"

namespace lockstep {

// One step as durations instead of times, so that it can be asked what it would have taken with
// other ones. All ranks begin together. A rank works through its slots; at the begin of some it
// waits until collectives have ended. A collective begins when it has left the queue of the last
// rank (arrived there, and the collective before it has ended) and then takes each rank its own
// time. With the recorded durations this gives back the recorded step.
// (The method of "Understanding stragglers in large model training": replay with work replaced by
// the mean and communication by the median over ranks.)
struct StepModel {
  // From a phase's begin or an arrival to the next one. The same on all ranks.
  struct Slot {
    Phase phase{};
    std::optional<size_t> arrives;  // place in `transfers`: the slot begins by entering it
    std::vector<size_t> joins;      // what is waited for, before the work begins
    std::vector<double> work_ns;    // by rank: the rest of the slot
    // By rank: for how long its thread was ready and had no core, in the whole phase that the slot
    // begins; 0 in other slots.
    std::vector<double> core_wait_ns;
  };
  // By rank. delay: from being next in the rank's own queue to the wire, 0 where records do not
  // tell (`launched`); service: from the last rank's launch to the end here.
  struct Transfer {
    std::vector<double> delay_ns, service_ns;
  };

  int64_t step = 0;
  std::vector<Slot> slots;
  std::vector<Transfer> transfers;
  std::vector<double> others_core_wait_ns;  // by rank: of its other threads, as for transfers

  size_t ranks() const { return slots.empty() ? 0 : slots.front().work_ns.size(); }
  // Its own time in the step, waiting left out; of one phase.
  // Of one phase, or of all.
  double work_ns(size_t rank, std::optional<Phase> phase = {}) const;
  double core_wait_ns(size_t rank, std::optional<Phase> phase = {}) const;
  // In its own queue for the wire, over the step's collectives.
  double delay_ns(size_t rank) const;

  // When the last rank is done.
  double step_ns() const;
  // Every work replaced by its mean, every delay and service by its median over ranks.
  StepModel ideal() const;
  // How long ideal() takes with one rank's own durations, for each rank in turn. All other ranks
  // are alike then, so that one of them stands for all: O(ranks), not O(ranks^2).
  std::vector<double> only_ns() const;
  // Those ranks' works and delays replaced by the mean and the median of the others'; the same as
  // it was where there is no other.
  StepModel without(const std::vector<size_t>& ranks) const;
  StepModel without(size_t rank) const { return without(std::vector<size_t>{rank}); }
};

// Nothing where ranks went other ways through the step, so that their slots cannot be compared.
std::optional<StepModel> model_of(const Timeline& timeline, const Step& step);

// What is less than this is not told apart from the scheduler of a busy machine.
inline constexpr double kLeastMs = 0.2;

// For each of many values the median of the others: sorted once, O(1) a question.
class MediansOfOthers {
 public:
  explicit MediansOfOthers(std::vector<double> values);  // two at least
  double without(double value) const;                    // one of them

 private:
  std::vector<double> sorted_;
};
double mean_of(const std::vector<double>& values);

}  // namespace lockstep
